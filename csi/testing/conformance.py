"""The conformance suite: what the pipeline relies on in every source adapter.

Each check reads the adapter's samples through a recorded network and returns what is wrong, one sentence each. A plugin
runs them with `csi adapters test NAME`, or in its own tests:

    class TestMyAdapter(AdapterConformance):
        adapter = MyAdapter
"""

import asyncio
import copy
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from csi import clock
from csi.adapters import registry
from csi.adapters.base import RawEvent, ReadResult, SampleAnswer, SourceSamples
from csi.errors import MalformedItem, SourceError
from csi.ingester.event import CreatorSignalEvent
from csi.testing.damaged_samples import BAD_ANSWERS, damaged_items
from csi.testing.sample_reader import Adapter, SampleReader

LONGEST_KEY = 512
LONGEST_SUBJECT = 256 * 1024
DAY = 86_400.0
PATIENCE = 6.0
"""How long a cancelled read may take to end."""


@dataclass(frozen=True)
class CheckResult:
    """One check and what it found wrong."""

    name: str
    what: str
    faults: tuple[str, ...]


def _samples(kind: Adapter) -> SourceSamples:
    found = kind.samples()
    if found is None:
        raise AssertionError(f"{kind.__name__}.samples() returns None: there is nothing to test with")
    return found


# ── the checks ──────────────────────────────────────────────────────────────────────────────────────────


def check_interface(kind: Adapter) -> Iterator[str]:
    """The class has FR-1.2's interface, and strict settings."""
    if fault := registry.interface_fault(getattr(kind, "name", ""), kind):
        yield fault
        return
    settings = kind.Settings
    if settings.model_config.get("extra") != "forbid":
        yield f"{settings.__name__} accepts unknown keys: a misspelt key would be ignored"
    try:
        settings.model_json_schema()
    except Exception as error:  # noqa: BLE001 pydantic raises errors of several kinds
        yield f"{settings.__name__} has no JSON Schema: {error}"
    for name, field in settings.model_fields.items():
        if field.is_required():
            yield f"sources.{kind.name}.{name} has no default, so `enabled: false` alone is not a valid block"
    if kind.samples() is None:
        yield f"{kind.__name__}.samples() returns None: there is nothing to test with"


def check_samples(kind: Adapter) -> Iterator[str]:
    """The samples can be read and list at least one item."""
    reader = SampleReader(kind, _samples(kind))
    if not reader.refs():
        yield "the settings of the samples name no watch"
    for ref in reader.refs():
        found = reader.read(ref)
        if not isinstance(found, ReadResult):
            yield f"read() returned {type(found).__name__}, not a ReadResult"
            return
        if not found.items:
            yield f"the samples list no item for {ref!r}"
        for item in found.items:
            yield from _item_faults(kind, item)


def check_identity(kind: Adapter) -> Iterator[str]:
    """The same item has the same key and event_id: read again, a day later, by another process."""
    samples = _samples(kind)
    first, later = SampleReader(kind, samples), SampleReader(kind, samples, now=samples.now + DAY)
    before, after = list(_identities(first, first.items())), list(_identities(later, later.items()))
    stored = list(_identities(later, map(_through_json, first.items())))
    if before != stored:
        yield "key or event_id changes when the item is stored and normalized later"
    if sorted(before) != sorted(after):
        yield "key or event_id depends on when the item was read"
    by_key = dict(before)
    if len(set(by_key.values())) != len(by_key):
        yield "two items with different keys have the same event_id"


def check_normalization(kind: Adapter) -> Iterator[str]:
    """Every sample item becomes an event, without a request and without changing the item."""
    reader = SampleReader(kind, _samples(kind))
    items = reader.items()
    asked = len(reader.net.requested)
    for item in items:
        before = copy.deepcopy(item)
        try:
            event = reader.adapter.normalize(item)
        except Exception as error:  # noqa: BLE001 whatever it is, it is the finding
            yield f"normalize() fails for a sample item: {type(error).__name__}: {error}"
            continue
        yield from _event_faults(kind, item, event)
        if item != before:
            yield "normalize() changes the item that it is given"
    if len(reader.net.requested) != asked:
        yield "normalize() reads from the network; read() must fetch everything that an event needs"


def check_dedupe_keys(kind: Adapter) -> Iterator[str]:
    """Keys are short, printable, distinct, begin with the source's own stem and are the same before normalization."""
    reader = SampleReader(kind, _samples(kind))
    stems = kind.key_stems or (f"{kind.name}:",)
    others = [one for one in registry.installed().values() if one.adapter and one.name != kind.name]
    is_ours = kind.name in registry.ADAPTERS  # both YouTube sources list the same videos
    foreign = {stem for one in others if one.adapter and not is_ours for stem in one.adapter.key_stems}
    if shared := sorted(set(stems) & foreign):
        yield f"key_stems has {shared[0]!r}, which belongs to another source"
    items = reader.items()
    keys = []
    for item in items:
        key, event = reader.adapter.item_key(item), reader.adapter.normalize(item)
        keys.append(key)
        if not isinstance(key, str) or not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
            yield f"{key!r:.100} is not a key: printable text of 1 to {LONGEST_KEY} characters"
        elif not key.startswith(tuple(stems)):
            yield f"{key!r:.100} begins with none of {', '.join(map(repr, stems))}"
        if key != reader.adapter.get_dedupe_key(event):
            yield f"item_key() gives {key!r:.100}, and get_dedupe_key() of its event something else"
        if event.dedupe_key != key:
            yield f"event.dedupe_key is {event.dedupe_key!r:.100}, and the item's key {key!r:.100}"
    if len(items) > 1 and len(set(keys)) == 1:
        yield "all sample items have the same key"


def check_bad_input(kind: Adapter) -> Iterator[str]:
    """A damaged answer or item raises SourceError or MalformedItem, and nothing else."""
    samples = _samples(kind)
    for name, change in BAD_ANSWERS.items():
        reader = SampleReader(kind, samples, change)
        for ref in reader.refs():
            try:
                reader.read(ref)
            except SourceError:
                pass
            except Exception as error:  # noqa: BLE001 whatever it is, it is the finding
                yield f"read() of an answer that is {name} raises {type(error).__name__}: {error}"
    reader = SampleReader(kind, samples)
    for item in reader.items()[:20]:
        for what, damaged in damaged_items(item):
            for method in (reader.adapter.normalize, reader.adapter.item_key):
                try:
                    method(damaged)
                except MalformedItem:
                    pass
                except Exception as error:  # noqa: BLE001 whatever it is, it is the finding
                    yield f"{method.__name__}() of an item {what} raises {type(error).__name__}, not MalformedItem"


def check_cancellation(kind: Adapter) -> Iterator[str]:
    """A read whose lease was lost stops, a cancelled fetch ends, and the adapter can be used afterwards."""
    samples = _samples(kind)
    reader = SampleReader(kind, samples)
    lost = SourceError("the watch was paused", kind="paused")

    def stop() -> None:
        raise lost

    for ref in reader.refs():
        try:
            reader.read(ref, progress=stop)  # a read of one page need not call it
        except SourceError as error:
            if error.kind != "paused":
                yield f"read() turns a lost lease into an error of kind {error.kind!r}"
        except Exception as error:  # noqa: BLE001 whatever it is, it is the finding
            yield f"read() turns a lost lease into {type(error).__name__}"
    if not _ends_when_cancelled(kind, samples):
        yield "fetch_events() does not end when it is cancelled"
    if not reader.items():
        yield "after a stopped read the adapter lists nothing"


def check_io(kind: Adapter) -> Iterator[str]:
    """The adapter uses the network, files, processes and databases only through `tools`."""
    samples = _samples(kind)
    SampleReader(kind, samples).items()  # modules that are imported late are loaded now
    with _watched_io() as seen:
        reader = SampleReader(kind, samples)
        for item in reader.items():
            reader.adapter.normalize(item)
            reader.adapter.item_key(item)
    for line in dict.fromkeys(seen):
        yield f"the adapter does I/O of its own: {line}"


CHECKS: dict[str, Callable[[Adapter], Iterable[str]]] = {
    "interface": check_interface,
    "samples": check_samples,
    "identity": check_identity,
    "normalization": check_normalization,
    "dedupe_keys": check_dedupe_keys,
    "bad_input": check_bad_input,
    "cancellation": check_cancellation,
    "io": check_io,
}


def examine(kind: Adapter) -> list[CheckResult]:
    """Run every check. A check that fails itself is a finding, too."""
    return [CheckResult(name, (check.__doc__ or "").strip(), faults_of(check, kind)) for name, check in CHECKS.items()]


def faults_of(check: Callable[[Adapter], Iterable[str]], kind: Adapter) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(check(kind)))
    except Exception as error:  # noqa: BLE001 an adapter may fail in any way; the suite continues
        return (f"{type(error).__name__}: {error}",)


class AdapterConformance:
    """A test class for pytest: subclass it and set `adapter`."""

    adapter: ClassVar[Adapter]

    def _passes(self, name: str) -> None:
        faults = faults_of(CHECKS[name], self.adapter)
        assert not faults, "\n".join(faults)

    def test_interface(self) -> None:
        self._passes("interface")

    def test_samples(self) -> None:
        self._passes("samples")

    def test_identity(self) -> None:
        self._passes("identity")

    def test_normalization(self) -> None:
        self._passes("normalization")

    def test_dedupe_keys(self) -> None:
        self._passes("dedupe_keys")

    def test_bad_input(self) -> None:
        self._passes("bad_input")

    def test_cancellation(self) -> None:
        self._passes("cancellation")

    def test_io(self) -> None:
        self._passes("io")


# ── what the checks need ────────────────────────────────────────────────────────────────────────────────


def _item_faults(kind: Adapter, item: Any) -> Iterator[str]:
    if not isinstance(item, RawEvent):
        yield f"read() lists {type(item).__name__}, not RawEvent"
        return
    if item.source != kind.name:
        yield f"an item's source is {item.source!r}, not {kind.name!r}"
    if not item.event_type:
        yield "an item has no event_type"
    try:
        json.dumps(item.payload, allow_nan=False)
    except (TypeError, ValueError) as error:
        yield f"an item's payload is not JSON: {error}"


def _event_faults(kind: Adapter, item: RawEvent, event: Any) -> Iterator[str]:
    if not isinstance(event, CreatorSignalEvent):
        yield f"normalize() returned {type(event).__name__}, not CreatorSignalEvent"
        return
    if event.source != kind.name:
        yield f"event.source is {event.source!r}, not {kind.name!r}"
    if not event.event_id.startswith("src:"):
        yield f"event_id {event.event_id!r:.100} does not begin with src:"
    for name in ("platform", "url", "title"):
        if name not in event.subject:
            yield f"event.subject has no {name}"
    for name in ("occurred_at", "received_at"):
        try:
            clock.parse(getattr(event, name))
        except ValueError:
            yield f"event.{name} is not a time"
    try:
        if len(json.dumps(event.subject, allow_nan=False)) > LONGEST_SUBJECT:
            yield f"event.subject is larger than {LONGEST_SUBJECT // 1024} KiB"
    except (TypeError, ValueError) as error:
        yield f"event.subject is not JSON: {error}"


def _identities(reader: SampleReader, items: Iterable[RawEvent]) -> Iterator[tuple[str, str]]:
    for item in items:
        yield reader.adapter.item_key(item), reader.adapter.normalize(item).event_id


def _through_json(item: RawEvent) -> RawEvent:
    """The item as the database gives it back."""
    return replace(item, payload=json.loads(json.dumps(item.payload)))


def _ends_when_cancelled(kind: Adapter, samples: SourceSamples) -> bool:
    """Cancels `fetch_events` while the network does not answer."""
    asked, release = threading.Event(), threading.Event()

    def wait(answer: SampleAnswer) -> SampleAnswer:
        asked.set()
        release.wait(PATIENCE)
        return answer

    async def cancel() -> bool:
        task = asyncio.ensure_future(SampleReader(kind, samples, wait).adapter.fetch_events())
        await asyncio.to_thread(asked.wait, PATIENCE)
        task.cancel()
        try:
            await asyncio.wait_for(asyncio.shield(_ended(task)), PATIENCE / 2)
        except TimeoutError:
            return False
        finally:
            release.set()
        return True

    return asyncio.run(cancel())


async def _ended(task: "asyncio.Future[Any]") -> None:
    with suppress(asyncio.CancelledError, SourceError):
        await task


# A hook of the interpreter cannot be removed: one is added at the first use and looks at _seen.
_seen: list[str] | None = None
_hooked = False
_NETWORK = ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "urllib.Request")
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "sqlite3.connect")
_FILES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.rmtree")


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event in (*_NETWORK, *_PROCESSES, *_FILES):
        _seen.append(event)
    elif event == "open" and not _is_import(arguments):
        _seen.append(f"open {str(arguments[0])[:200]!r}")


def _is_import(arguments: tuple[Any, ...]) -> bool:
    """Reading a module, or a file beside one: time zones and data of a library."""
    path, mode, _ = (*arguments, None, None, None)[:3]
    if mode is not None and any(letter in str(mode) for letter in "wxa+"):
        return False
    places = (sys.prefix, sys.base_prefix, "/usr/share/zoneinfo", *(place for place in sys.path if place))
    return str(path).startswith(places)


@contextmanager
def _watched_io() -> Iterator[list[str]]:
    """Record what this process opens and connects to."""
    global _seen, _hooked
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    seen: list[str] = []
    _seen = seen
    try:
        yield seen
    finally:
        _seen = None

"""The provider `extractive`: a summary of the transcript's most significant sentences, without a model or a key."""

import math
import re
from collections import Counter

from csi.processing.collection_models import VideoSummary
from csi.processing.providers.base import AskModel, SummaryInput, SummaryResult, SummaryType
from csi.processing.sanitize import markdown_line

MODEL = "csi-extractive-1"
NOTE = "Sentences taken from the transcript word for word; no language model was used."
SENTENCES: dict[SummaryType, int] = {"short": 2, "detailed": 6, "executive": 4}
"""Of the paragraph, by the type of summary."""
LONGEST_SENTENCE = 60
LONGEST_PIECE = 600
MOST_SENTENCES = 20_000
_SENTENCE = re.compile(r"[^.!?。！？]+[.!?。！？]*")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_COMMON = frozenset([
    "a", "about", "after", "all", "also", "an", "and", "any", "are", "as", "at", "be", "because", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "get", "go", "going", "good", "got", "had", "has", "have",
    "he", "her", "here", "him", "his", "how", "i", "if", "in", "into", "is", "it", "its", "just", "know", "let",
    "like", "look", "make", "me", "more", "my", "no", "not", "now", "of", "on", "one", "only", "or", "other", "our",
    "out", "over", "really", "right", "see", "she", "so", "some", "than", "that", "the", "their", "them", "then",
    "there", "these", "they", "thing", "things", "think", "this", "those", "to", "too", "up", "us", "use", "very",
    "want", "was", "way", "we", "well", "were", "what", "when", "where", "which", "who", "why", "will", "with",
    "would", "yeah", "you", "your",
])  # fmt: skip


class ExtractiveSummariser:
    """summarization.provider: extractive"""

    name = "extractive"
    model = MODEL

    def write(self, source: SummaryInput, documents: tuple[str, ...], ask: AskModel) -> SummaryResult:
        sentences = split_sentences(source.text)
        weights = Counter(word for sentence in sentences for word in _words(sentence))
        for word in (word for area in source.focus_areas for word in _words(area)):
            weights[word] *= 3
        best = _best_sentences(sentences, weights, source.bullets_wanted)
        chosen = best[: SENTENCES[source.summary_type]]
        summary = VideoSummary(
            bullets=[sentences[index] for index in sorted(best)],
            key_concepts=[word for word, _ in sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:8]],
            executive_summary=" ".join([NOTE, *(sentences[index] for index in sorted(chosen))]),
        )
        made = {kind: _document(kind, source, summary, sentences) for kind in documents}
        return SummaryResult(summary, MODEL, made)


def split_sentences(text: str) -> list[str]:
    """Captions often have no full stops, and Chinese has no spaces: sentences that are too long are cut."""
    pieces: list[str] = []
    for match in _SENTENCE.finditer(text):
        words = match[0].split()
        lines = [" ".join(words[at : at + LONGEST_SENTENCE]) for at in range(0, len(words), LONGEST_SENTENCE)]
        pieces += [line[at : at + LONGEST_PIECE] for line in lines for at in range(0, len(line), LONGEST_PIECE)]
        if len(pieces) >= MOST_SENTENCES:
            break
    return [piece for piece in pieces if len(piece) > 1][:MOST_SENTENCES]


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text) if len(word) > 2 and word.lower() not in _COMMON]


def _best_sentences(sentences: list[str], weights: Counter[str], most: int) -> list[int]:
    """The indexes of the sentences with the highest score, best first, without repeated sentences."""

    def score(index: int) -> float:
        words = _words(sentences[index])
        return sum(math.log1p(weights[word]) for word in set(words)) / math.sqrt(len(words) + 5)

    seen: set[str] = set()
    chosen: list[int] = []
    for index in sorted(range(len(sentences)), key=lambda index: (-score(index), index)):
        key = " ".join(_words(sentences[index]))
        if key not in seen or not chosen:
            seen.add(key)
            chosen.append(index)
        if len(chosen) == most:
            break
    return chosen


def _document(kind: str, source: SummaryInput, summary: VideoSummary, sentences: list[str]) -> str:
    """Sentences of the transcript in their order, under the headings of the document."""
    steps = [line for line in sentences if re.match(r"(?i)(first|then|next|now|after|finally|step)\b", line)]
    lists = {
        "concept": ("The ideas, in the words of the video", summary.bullets),
        "implementation": ("Sentences that sound like steps", steps[:30] or summary.bullets),
    }
    heading, lines = lists[kind]
    terms = ", ".join(summary.key_concepts) or "none found"
    body = "\n".join(f"- {line}" for line in lines)
    title = markdown_line(source.title)
    return f"# {title}\n\n{NOTE}\n\nSource: {source.url}\n\n## {heading}\n\n{body}\n\n## Terms\n\n{terms}\n"

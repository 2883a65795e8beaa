"""Where the sidecar may listen."""

import pytest

from csi.config.settings import EnvironmentSecrets, Settings, WebSettings
from csi.errors import ConfigError
from csi.main import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    with listen(Settings(web=WebSettings(host=host, port=0))) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_wider_bind_needs_the_admin_token_and_not_only_the_readers(host: str) -> None:
    settings = Settings(web=WebSettings(host=host, port=0), secrets=EnvironmentSecrets(admin_read_token="0123456789"))
    with pytest.raises(ConfigError, match="CSI_ADMIN_TOKEN"):
        listen(settings)

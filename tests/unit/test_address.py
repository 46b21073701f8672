"""Addresses of sinks: what is taken, what is refused, and that secrets are not shown."""

import pytest

from eacgm.errors import ConfigError
from eacgm.sinks.address import parse, read_secret


def test_a_url_may_stand_in_a_file_and_is_never_shown_whole(tmp_path):
    file = tmp_path / "url"
    file.write_text("https://hooks.slack.example/services/T0/B0/secret\n")
    address = parse(f"slack=@{file}")
    assert address.url == "https://hooks.slack.example/services/T0/B0/secret"
    assert "secret" not in str(address)
    assert "secret" not in repr(address)


@pytest.mark.parametrize(
    "text",
    ["", "pager=http://x", "webhook", "webhook=", "webhook=ftp://x", "webhook=http://", "webhook=http://[::1",
     "webhook=http://x:99999", "webhook=http://a b/", "webhook=http://u:p@x/",
     "webhook=http://x/\n", "slack=@/nowhere"],
)  # fmt: skip
def test_what_is_no_address_is_told_in_one_line(text):
    with pytest.raises(ConfigError) as told:
        parse(text)
    assert "expected" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"\xff\xfe"])
def test_a_secret_is_one_line_of_text(content, tmp_path):
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigError, match="one line"):
        read_secret(tmp_path / "secret")

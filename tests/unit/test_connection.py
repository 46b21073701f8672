import base64
import json
import pickle

import click
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError

from eacgm.cli.kafka_options import kafka_options
from eacgm.errors import ConfigError
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import MAX_SECRET_BYTES, Connection
from eacgm.kafka.token import stated_expiry, token_and_expiry

SECRETS = ("hunter2", "bearer-me", "unlock-me", "registry-pass")


def everything(**changes):
    variables = {
        "EACGM_KAFKA_BOOTSTRAP": "a:9092, b:9093",
        "EACGM_KAFKA_USER": "agent",
        "EACGM_KAFKA_PASSWORD": "hunter2",
        "EACGM_KAFKA_CA": __file__,
        "EACGM_KAFKA_CERTIFICATE": __file__,
        "EACGM_KAFKA_KEY": __file__,
        "EACGM_KAFKA_KEY_PASSWORD": "unlock-me",
        "EACGM_KAFKA_REGISTRY": "https://registry:8081",
        "EACGM_KAFKA_REGISTRY_USER": "reader",
        "EACGM_KAFKA_REGISTRY_PASSWORD": "registry-pass",
    }
    return variables | changes


def test_the_environment_gives_librdkafkas_settings():
    assert Connection.from_environment(everything()).librdkafka() == {
        "bootstrap.servers": "a:9092,b:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "agent",
        "sasl.password": "hunter2",
        "ssl.ca.location": __file__,
        "ssl.certificate.location": __file__,
        "ssl.key.location": __file__,
        "ssl.key.password": "unlock-me",
    }


def test_an_address_alone_is_plaintext():
    connection = Connection.from_environment({"EACGM_KAFKA_BOOTSTRAP": "[::1]:9092"})
    assert connection.librdkafka() == {"bootstrap.servers": "[::1]:9092", "security.protocol": "PLAINTEXT"}
    assert connection.aiokafka() == {"bootstrap_servers": "[::1]:9092", "security_protocol": "PLAINTEXT"}
    assert connection.faust_credentials() is None
    assert connection.registry is None


def test_no_secret_is_in_a_repr():
    for connection in (
        Connection.from_environment(everything()),
        Connection(bootstrap="a:1", token="bearer-me", key_password="unlock-me"),
    ):
        shown = f"{connection!r} {connection} {[connection]} {connection.faust_broker()}"
        assert not any(secret in shown for secret in SECRETS)


def test_secrets_come_from_files(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("from the file\n")
    variables = everything(EACGM_KAFKA_PASSWORD="", EACGM_KAFKA_PASSWORD_FILE=str(secret))
    assert Connection.from_environment(variables).password == "from the file"
    # what an option gives comes before the environment
    assert Connection.from_environment(everything(), password_file=str(secret)).password == "from the file"


def test_a_rotated_token_is_followed(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    connection = Connection(bootstrap="a:1", token_file=str(file))
    assert connection.mechanism == "OAUTHBEARER"
    take = connection.librdkafka()["oauth_cb"]
    assert take("")[0] == "first"
    file.write_text("second\n")
    assert take("")[0] == "second"


def test_a_token_lasts_as_long_as_it_says():
    def part(content):
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    token = ".".join((part({"alg": "none"}), part({"exp": 1_900_000_000}), ""))
    assert token_and_expiry(token) == (token, 1_900_000_000.0)
    for opaque in ("x", "a.b.c", f"a.{part([])}.c", f"a.{part({'exp': None})}.c"):
        assert stated_expiry(opaque) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"EACGM_KAFKA_BOOTSTRAP": ""}, "give --bootstrap HOST:PORT, or set EACGM_KAFKA_BOOTSTRAP"),
        ({"EACGM_KAFKA_BOOTSTRAP": " , "}, "no address of Kafka"),
        ({"EACGM_KAFKA_BOOTSTRAP": "kafka"}, "'kafka' is no address of a broker; expected HOST:PORT"),
        ({"EACGM_KAFKA_BOOTSTRAP": "http://kafka:9092"}, "is no address of a broker"),
        ({"EACGM_KAFKA_BOOTSTRAP": "kafka:99999"}, "is no address of a broker"),
        ({"EACGM_KAFKA_PROTOCOL": "TLS"}, "'TLS' is no security protocol; expected one of PLAINTEXT"),
        ({"EACGM_KAFKA_PROTOCOL": "plaintext"}, "PLAINTEXT sends no credentials; expected SASL_SSL"),
        ({"EACGM_KAFKA_PROTOCOL": "SASL_PLAINTEXT"}, "SASL_PLAINTEXT is not encrypted"),
        ({"EACGM_KAFKA_MECHANISM": "GSSAPI"}, "'GSSAPI' is no SASL mechanism"),
        ({"EACGM_KAFKA_MECHANISM": "OAUTHBEARER"}, "OAUTHBEARER needs a token"),
        ({"EACGM_KAFKA_PASSWORD": ""}, "SCRAM-SHA-512 needs a password"),
        ({"EACGM_KAFKA_PASSWORD_FILE": "/etc/hostname"}, "both EACGM_KAFKA_PASSWORD and EACGM_KAFKA_PASSWORD_FILE"),
        ({"EACGM_KAFKA_KEY": ""}, "a client certificate and its key go together"),
        ({"EACGM_KAFKA_REGISTRY": "registry:8081"}, "is no registry; expected http"),
        ({"EACGM_KAFKA_REGISTRY": "http://u:p@registry"}, "holds a password"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(changes, reason):
    with pytest.raises(ConfigError, match=reason) as told:
        Connection.from_environment(everything(**changes))
    assert "\n" not in str(told.value)
    assert not any(secret in str(told.value) for secret in SECRETS)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"x" * (MAX_SECRET_BYTES + 1)])
def test_a_bad_secret_file_is_said_in_one_line(content, tmp_path):
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="the secret's file") as told:
        Connection.from_environment(everything(EACGM_KAFKA_PASSWORD="", EACGM_KAFKA_PASSWORD_FILE=str(file)))
    assert len(str(told.value)) < 500


def test_a_missing_certificate_is_said_in_one_line(tmp_path):
    connection = Connection(bootstrap="a:1", authority=str(tmp_path / "none.pem"))
    for settings in (connection.librdkafka, connection.aiokafka, connection.faust_credentials):
        with pytest.raises(ConfigError, match=r"none\.pem"):
            settings()


def test_a_connection_travels_to_a_child_process():
    connection = Connection.from_environment(everything())
    assert pickle.loads(pickle.dumps(connection)) == connection


def told(*errors):
    complaints = Complaints(Connection(bootstrap="a:1", user="agent", password="hunter2"))
    for code, text in errors:
        complaints.take(KafkaError(code, text))
    return complaints


def test_the_telling_complaint_is_kept():
    complaints = told(
        (KafkaError._AUTHENTICATION, "sasl_ssl://a:1/bootstrap: SASL authentication error: no (after 3ms in state X)"),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
        (KafkaError._TRANSPORT, "a:1/bootstrap: Disconnected"),
    )
    assert complaints.hopeless
    assert complaints.reason.startswith("authentication failed for user agent at a:1: SASL authentication error: no; ")
    complaints.reached()
    assert complaints.reason == ""
    assert not complaints.hopeless


def test_one_unknown_host_of_several_is_not_hopeless():
    assert not told((KafkaError._RESOLVE, "a:1/bootstrap: Failed to resolve")).hopeless
    both = told((KafkaError._RESOLVE, "a:1/bootstrap: no"), (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert both.hopeless


def test_a_reason_is_said_once():
    said = []
    complaints = Complaints(Connection(bootstrap="a:1"), said.append)
    for number in range(5):
        text = f"a:1/bootstrap: Connection refused (after {number}ms in state CONNECT)"
        complaints.take(KafkaError(KafkaError._TRANSPORT, text))
    assert said == ["Kafka at a:1 does not answer: Connection refused; check that it runs and --bootstrap"]


@click.command()
@kafka_options
def show(connection):
    click.echo(f"{connection!r} {connection.password == 'from the file'}")


def test_options_come_before_the_environment(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("from the file")
    done = CliRunner().invoke(
        show, ["--bootstrap", "c:1", "--password-file", str(secret)], env=everything(EACGM_KAFKA_PASSWORD="")
    )
    assert done.exit_code == 0, done.output
    assert "bootstrap='c:1'" in done.output
    assert done.output.strip().endswith("True")
    assert "from the file" not in done.output


def test_a_missing_address_is_wrong_usage():
    done = CliRunner().invoke(show, [], env={"EACGM_KAFKA_BOOTSTRAP": ""})
    assert done.exit_code == 2
    assert "--bootstrap" in done.output

"""A session behind Spark Connect: settings and statements by URL, nothing else.

The one module that speaks gRPC. It takes the protocol's messages from pyspark and leaves out its client, which brings
pandas and the row API along: what is asked of that Spark is a MERGE, whose rows stay where they are.

A session is given up after any error, so a statement that nobody waits for any more is stopped by the server, and what
was set for it is gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import ConfigError, ConnectError
from connectors.iceberg.spark.errors import (
    CatalogUnavailableError,
    TableForbiddenError,
    TableUnsuitableError,
)

if TYPE_CHECKING:
    import grpc

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 15002
CLIENT: Final = "connect-py"
_KEY: Final = "iceberg.spark.remote"
_CALL_SECONDS: Final = 60.0  # for everything but statements
_RELEASE_SECONDS: Final = 5.0
# A connection that a firewall dropped is noticed; servers refuse more than one such question in five minutes.
_CHANNEL: Final = (("grpc.keepalive_time_ms", 330_000), ("grpc.max_receive_message_length", 128 << 20))
_UNSUITABLE: Final = "org.apache.spark.sql.AnalysisException"
_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"


class ConnectSession:
    """One thread uses it; `give_up` and `close` may be called from any."""

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        """Connect to nobody yet.

        Args:
            url: `sc://host:port/;token=…;use_ssl=true;user_id=…`; other parameters go along as headers.
            settings: Of the session. Those of a catalog that the server knows already are left out.

        Raises:
            ConfigError: The URL is not of that form.
        """
        self._place = RemotePlace.of(url)
        self._settings = dict(settings)
        self._channel: grpc.Channel | None = None
        self._stub: Any = None
        self._session = ""  # its id; empty: there is none
        self._server_session = ""  # what the server calls it; another one after it was started anew
        self._why = ""  # what a statement was given up for
        self._closed = False
        self.running = False  # a statement

    def start(self) -> None:
        """Have a session with the settings.

        Raises:
            CatalogUnavailableError: The server does not answer, or refuses.
        """
        if self._closed:
            raise CatalogUnavailableError(f"Spark Connect at {self._place.address}: the session was closed")
        if self._session:
            return
        if self._channel is None:
            from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

            self._channel = self._place.channel()
            self._stub = SparkConnectServiceStub(self._channel)  # type: ignore[no-untyped-call] # generated
        self._session, self._server_session = str(uuid.uuid4()), ""
        with self._errors("the session"):
            self._set(self._without_known_catalogs(self._settings))
        log.info("Spark Connect at %s: session %s", self._place.address, self._session)

    def run(self, subject: str, statement: str, settings: Mapping[str, str]) -> None:
        """Run one statement about a table to its end, with these settings for its time.

        Raises:
            TableForbiddenError, TableUnsuitableError: The server says so.
            CatalogUnavailableError: It did not end well, or nobody knows.
        """
        from pyspark.sql.connect.proto import base_pb2, commands_pb2, relations_pb2

        self.start()
        with self._errors(subject), self._under_way():
            self._set(settings)
            query = relations_pb2.Relation(sql=relations_pb2.SQL(query=statement))
            command = commands_pb2.Command(sql_command=commands_pb2.SqlCommand(input=query))
            request = base_pb2.ExecutePlanRequest(plan=base_pb2.Plan(command=command), **self._who())
            for answer in self._stub.ExecutePlan(request, metadata=self._place.metadata):
                self._saw(answer)
            self._unset(settings)

    def close(self) -> None:
        """End session and connection for good; a statement under way fails."""
        self._closed = True
        self._hang_up()

    def give_up(self, why: str) -> None:
        """End session and connection, until they are needed again; a statement under way fails, and says why."""
        self._why = why
        self._hang_up()

    @contextlib.contextmanager
    def _under_way(self) -> Iterator[None]:
        self._why, self.running = "", True
        try:
            yield
        finally:
            self.running = False

    def _hang_up(self) -> None:
        self._release()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    # --- one call each

    def _without_known_catalogs(self, settings: Mapping[str, str]) -> dict[str, str]:
        prefix = "spark.sql.catalog."
        names = {key.removeprefix(prefix).split(".", 1)[0] for key in settings if key.startswith(prefix)}
        known = {name for name in names if self._known(prefix + name)}
        for name in sorted(known):
            log.info("Spark Connect at %s knows catalog %s: its own settings count", self._place.address, name)
        own = tuple(prefix + name for name in known)
        kept = {k: v for k, v in settings.items() if k not in own and not k.startswith(tuple(f"{o}." for o in own))}
        # But a catalog that keeps tables, as it does by default, would not see the branches of the next MERGE.
        return kept | {f"{name}.cache-enabled": "false" for name in own}

    def _known(self, key: str) -> bool:
        from pyspark.sql.connect.proto import base_pb2

        asked = base_pb2.ConfigRequest.GetOption(keys=[key])
        answer = self._config(base_pb2.ConfigRequest.Operation(get_option=asked))
        return any(pair.HasField("value") for pair in answer.pairs)

    def _set(self, settings: Mapping[str, str]) -> None:
        from pyspark.sql.connect.proto import base_pb2

        if settings:
            pairs = [base_pb2.KeyValue(key=key, value=value) for key, value in settings.items()]
            self._config(base_pb2.ConfigRequest.Operation(set=base_pb2.ConfigRequest.Set(pairs=pairs)))

    def _unset(self, settings: Mapping[str, str]) -> None:
        from pyspark.sql.connect.proto import base_pb2

        if settings:
            unset = base_pb2.ConfigRequest.Unset(keys=list(settings))
            self._config(base_pb2.ConfigRequest.Operation(unset=unset))

    def _config(self, operation: Any) -> Any:
        from pyspark.sql.connect.proto import base_pb2

        request = base_pb2.ConfigRequest(operation=operation, **self._who())
        answer = self._stub.Config(request, metadata=self._place.metadata, timeout=_CALL_SECONDS)
        self._saw(answer)
        return answer

    def _release(self) -> None:
        """Give the session up: the server stops what runs in it. It does so by itself after an hour of silence."""
        from pyspark.sql.connect.proto import base_pb2

        session, self._session = self._session, ""
        if not session or self._channel is None:
            return
        import grpc

        who = {**self._who(), "session_id": session}
        who.pop("client_observed_server_side_session_id", None)
        with contextlib.suppress(grpc.RpcError, ValueError):  # ValueError: the channel was closed meanwhile
            request = base_pb2.ReleaseSessionRequest(**who)
            self._stub.ReleaseSession(request, metadata=self._place.metadata, timeout=_RELEASE_SECONDS)

    def _who(self) -> dict[str, Any]:
        """Members that every request has."""
        from pyspark.sql.connect.proto import base_pb2

        user = base_pb2.UserContext(user_id=self._place.user, user_name=self._place.user)
        who: dict[str, Any] = {"session_id": self._session, "user_context": user, "client_type": CLIENT}
        if self._server_session:  # a server that was started anew refuses then, and does not run it without settings
            who["client_observed_server_side_session_id"] = self._server_session
        return who

    def _saw(self, answer: Any) -> None:
        self._server_session = answer.server_side_session_id or self._server_session

    @contextlib.contextmanager
    def _errors(self, subject: str) -> Iterator[None]:
        import grpc

        try:
            yield
        except grpc.RpcError as error:
            self._release()
            if self._why:
                raise CatalogUnavailableError(
                    f"{subject}: Spark Connect at {self._place.address}: {self._why}"
                ) from error
            raise _translated(subject, self._place.address, error) from error
        except ValueError as error:
            self._session = ""
            raise CatalogUnavailableError(f"{subject}: the connection was closed: {error}") from error


class RemotePlace:
    """What a Spark Connect URL says."""

    def __init__(self, address: str, user: str, token: str, secure: bool, headers: Mapping[str, str]) -> None:
        self.address = address  # host:port
        self.user = user
        self.secure = secure
        self.metadata = tuple(headers.items()) + ((("authorization", f"Bearer {token}"),) if token else ())

    @classmethod
    def of(cls, url: str) -> RemotePlace:
        """Raises: ConfigError."""
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port or DEFAULT_PORT
        except ValueError:
            raise ConfigError(_KEY, "is not a Spark Connect URL, sc://host:port/;name=value") from None
        path, _, rest = parts.path.partition(";")
        if parts.scheme != "sc" or not host or path not in ("", "/") or parts.query or "#" in url or parts.username:
            raise ConfigError(_KEY, "is not a Spark Connect URL, sc://host:port/;name=value")
        given = {}
        for pair in filter(None, rest.split(";")):
            name, said, value = pair.partition("=")
            if not name or not said:
                raise ConfigError(_KEY, "has a parameter that is not of the form name=value")
            given[name] = urllib.parse.unquote(value)
        token = given.pop("token", "")
        secure = given.pop("use_ssl", "true" if token else "false").lower() == "true"
        user = given.pop("user_id", "") or os.environ.get("USER", CLIENT)
        for name in ("session_id", "user_agent", "grpc_max_message_size"):  # of other clients
            given.pop(name, None)
        shown = f"[{host}]" if ":" in host else host
        return cls(f"{shown}:{port}", user, token, secure, {name.lower(): value for name, value in given.items()})

    def channel(self) -> grpc.Channel:
        import grpc

        if self.secure:
            return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(), options=_CHANNEL)
        return grpc.insecure_channel(self.address, options=_CHANNEL)


def _translated(subject: str, address: str, error: grpc.RpcError) -> ConnectError:
    """By Spark's own class of error, where there is one."""
    import grpc

    code, details = error.code(), (error.details() or "").strip().split("\n", 1)[0]
    if _UNSUITABLE in json.loads(_error_info(error).get("classes", "[]")):  # it may know another table of this name
        return TableUnsuitableError(subject, f"Spark Connect at {address}: {details}")
    if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
        return TableForbiddenError(subject, f"Spark Connect at {address} refuses: {details}")
    return CatalogUnavailableError(f"{subject}: Spark Connect at {address}: {code.name}: {details}")


def _error_info(error: grpc.RpcError) -> Mapping[str, str]:
    from google.rpc import error_details_pb2, status_pb2

    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                if detail.type_url == _ERROR_INFO:
                    info = error_details_pb2.ErrorInfo.FromString(detail.value)
                    return {**info.metadata}
    return {}

"""`ConfigRequests`: creates, changes, and deletes connectors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from connect_py.api.errors import AlreadyExistsError
from connect_py.futures import done
from connect_py.herder.connector_configs import ConnectorConfigs
from connect_py.herder.herder import (
    BadRequestError,
    Config,
    ConfigInfos,
    ConnectorInfo,
    Created,
    InitialState,
)
from connect_py.herder.requests.request_router import RequestRouter
from connect_py.herder.requests.validation_requests import ValidationRequests
from connect_py.herder.thread.futures import chain
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.storage.config_store import ConfigStore


class ConfigRequests:
    """Validates a configuration and then writes it on the leader's thread. Thread-safe."""

    def __init__(
        self,
        connectors: ConnectorConfigs,
        store: ConfigStore,
        router: RequestRouter,
        validations: ValidationRequests,
        stages: StageBoard,
        respond: Callable[[Created], Created | Future[Created]],
    ) -> None:
        """Create the component.

        `respond` returns the response to a request whose configuration has been written. It may
        wait until the configuration has taken effect.
        """
        self._connectors = connectors
        self._store = store
        self._router = router
        self._validations = validations
        self._stages = stages
        self._respond = respond

    def put(
        self, name: str, config: Config, *, replace: bool, initial_state: InitialState | None
    ) -> Future[Created]:
        """See `Herder.put_connector`."""
        config = dict(config)

        def write(infos: ConfigInfos) -> Future[Created]:
            _check_valid(infos)
            return self._router.submit_to_leader(
                lambda: self._respond(self._write(name, config, replace, initial_state))
            )

        return chain(self._validations.validate(config), write)

    def patch(self, name: str, changes: Config) -> Future[ConnectorInfo]:
        """Merge, validate, and write the configuration.

        If the configuration changes in the meantime, all steps are repeated.
        """

        def merge() -> Future[ConnectorInfo]:
            state = self._connectors.state_with(name)
            merged, merged_with = dict(state.configs[name]), state.config_offsets[name]
            if changes.get("name", name) not in (name, None):
                raise BadRequestError(
                    f"Connector name configuration ({changes['name']}) doesn't match connector "
                    f"name in the URL ({name})"
                )
            for key, value in changes.items():
                if value is None:
                    merged.pop(key, None)
                else:
                    merged[key] = value
            return chain(
                self._validations.validate(merged),
                lambda infos: self._router.submit_to_leader(
                    lambda: write(infos, merged, merged_with)
                ),
            )

        def write(infos: ConfigInfos, merged: Config, merged_with: int) -> Future[ConnectorInfo]:
            if self._connectors.state_with(name).config_offsets[name] != merged_with:
                return merge()
            _check_valid(infos)
            response = self._respond(self._write(name, merged, True, None))
            return chain(
                response if isinstance(response, Future) else done(response),
                lambda created: done(created.info),
            )

        return self._router.submit_to_leader(merge)

    def delete(self, name: str) -> Future[None]:
        """Delete a connector."""

        def delete() -> None:
            self._connectors.state_with(name)
            with self._stages.stage(
                f"removing the config for connector {name} from the config topic"
            ):
                self._store.remove_connector_config(name)

        return self._router.submit_to_leader(delete)

    def _write(
        self, name: str, config: Config, replace: bool, initial_state: InitialState | None
    ) -> Created:
        state = self._connectors.state()
        exists = name in state.configs
        if exists and not replace:
            raise AlreadyExistsError(f"Connector {name} already exists")
        tasks = state.tasks(name)
        with self._stages.stage(f"writing a config for connector {name} to the config topic"):
            self._store.put_connector_config(
                name, config, None if initial_state is None else initial_state.target
            )
        stored = {key: value for key, value in config.items() if value is not None}
        return Created(
            not exists, ConnectorInfo(name, stored, tasks, self._connectors.type_of(name))
        )


def _check_valid(infos: ConfigInfos) -> None:
    if infos.error_count:
        raise BadRequestError(error_message(infos))


def error_message(infos: ConfigInfos) -> str:
    """Return the error message for an invalid configuration. Each error names its config key."""
    lines = [
        f"Connector configuration is invalid and contains the following {infos.error_count} "
        f"error(s):"
    ]
    values = [config.value for config in infos.configs if config.value is not None]
    lines += [
        error if value.name in error else f"{value.name}: {error}"
        for value in values
        for error in value.errors
    ]
    # Kafka Connect's message contains these braces
    endpoint = "`/connector-plugins/{connectorType}/config/validate`"
    lines.append(f"You can also find the above list of errors at the endpoint {endpoint}")
    return "\n".join(lines)

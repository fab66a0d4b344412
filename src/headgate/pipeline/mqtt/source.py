"""The data source itself: which reader or writer serves which request."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headgate.errors import ConfigurationError
from headgate.pipeline.mqtt.message import ARROW, SCHEMA


class MqttDataSource(DataSource):
    """`format("mqtt")`. Options are read where they are needed, so that mistakes are told early.

    The parts are imported when asked for: to make the format known to a session costs nothing.
    """

    @classmethod
    def name(cls) -> str:
        return "mqtt"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from headgate.pipeline.mqtt.batch import MqttReader  # noqa: PLC0415

        must_be_ours(schema)
        return MqttReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's)
        from headgate.pipeline.mqtt.stream import MqttStreamReader  # noqa: PLC0415

        must_be_ours(schema)
        return MqttStreamReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headgate.pipeline.mqtt.writer import MqttWriter  # noqa: PLC0415

        if overwrite:
            raise ConfigurationError('what is published cannot be overwritten: use mode("append")')
        return MqttWriter(dict(self.options), schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from headgate.pipeline.mqtt.writer import MqttStreamWriter  # noqa: PLC0415

        return MqttStreamWriter(dict(self.options), schema)


def must_be_ours(schema: StructType) -> None:
    """Messages have the fields that they have."""
    if schema.fieldNames() != ARROW.names:
        raise ConfigurationError("format mqtt has a schema of its own: leave out .schema(…)")

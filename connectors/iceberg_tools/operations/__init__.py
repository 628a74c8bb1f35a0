"""What a user may have the sink do over REST: `POST
/connectors/{connector}/operations/{operation}`."""

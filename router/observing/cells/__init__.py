"""The cells of a fleet of gateways, as a gateway knows them: as JSON, as a table, and as routes of Envoy."""

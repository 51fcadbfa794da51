"""The result cache before the gateway, and the tier that gateways share."""

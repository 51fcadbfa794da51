"""Dashboards for Grafana: one table of panels, and what makes a dashboard of it."""

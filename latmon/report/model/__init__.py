"""Types of a report, one module per subject. Their JSON (latmon/support/typed_json.py) is that of `report --json`.

The texts below fields are descriptions in schemas/report.json, which contrib/typed_schema.py makes of `report.Report`.
Changes are additive: scripts read these keys.
"""

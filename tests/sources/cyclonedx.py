"""Judges an SBOM by CycloneDX's own schema: cyclonedx.py DIRECTORY-OF-SCHEMAS FILE. What is wrong goes to stderr."""

import json
import sys

import jsonschema

# Debian's jsonschema cannot sort what it would print of a schema that does not fit; only whether it fits counts here.
jsonschema._validators.extras_msg = lambda extras: (str(list(extras)), "were")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


directory, file = sys.argv[1:]
schema, *others = (load(f"{directory}/{name}.SNAPSHOT.schema.json") for name in ("bom-1.6", "spdx", "jsf-0.82"))
resolver = jsonschema.RefResolver(schema["$id"], schema, {other["$id"]: other for other in others})
faults = jsonschema.Draft7Validator(schema, resolver=resolver).iter_errors(load(file))
sys.exit("\n".join(f"{list(fault.absolute_path)}: {fault.message}" for fault in faults) or 0)

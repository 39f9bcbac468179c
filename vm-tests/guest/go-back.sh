#!/bin/bash
# Go back to the other system, by the installer of the one that runs.
set -euo pipefail

installer rollback --reason "a story of the campaign"
installer status

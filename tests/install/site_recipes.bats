#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests the files below packaging/ and .github/: recipes for Spack and EasyBuild, a container, and
# continuous integration. Neither Spack nor a container runs here; the tests compare the recipes
# with CMakeLists.txt.

bats_require_minimum_version 1.5.0

setup() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  check=$here/tests/install/site_recipes.py
  cd "$BATS_TEST_TMPDIR" || return
}

@test "Spack: version, variants and dependencies are those of CMakeLists.txt" {
  run -0 "$check" spack "$here/packaging/spack/package.py"
  sed -e '/fmt@/d' -e 's/SLURM_DDP_TORCH/SLURM_DDP_TORCHES/' "$here/packaging/spack/package.py" > package.py
  run -1 "$check" spack package.py
  [[ $output == *"SLURM_DDP_TORCHES is not an option"*"fmt is needed"* ]]
}

@test "EasyBuild: version, options and dependencies are those of CMakeLists.txt" {
  local recipe
  recipe=$(echo "$here"/packaging/easybuild/*.eb)
  run -0 "$check" easybuild "$recipe"
  sed -e "/'fmt'/d" -e "s/^version.*/version = '9.9'/" "$recipe" > "$(basename "$recipe")"
  run -1 "$check" easybuild "$(basename "$recipe")"
  [[ $output == *"must be called slurm-ddp-9.9-"*"version 9.9"*"fmt is needed"* ]]
}

@test "EasyBuild itself reads its recipe" {
  python3 -c 'import easybuild.framework' 2> /dev/null || skip "no EasyBuild on this machine (pip install easybuild-framework)"
  run -0 python3 - "$here"/packaging/easybuild/*.eb << 'PYTHON'
import sys
from easybuild.framework.easyconfig.parser import EasyConfigParser
from easybuild.tools.options import set_up_configuration
set_up_configuration(args=["--allow-use-as-root-and-accept-consequences"], silent=True)
recipe = EasyConfigParser(sys.argv[1]).get_config_dict()
assert recipe["name"] == "slurm-ddp" and recipe["sources"] and recipe["dependencies"], recipe
PYTHON
}

@test "the Dockerfile uses known instructions, and copies only the package with the programs" {
  run awk '/^#/ || /^ / { next } { print $1 }' "$here/packaging/container/Dockerfile"
  [ "$output" = $'FROM\nCOPY\nRUN\nCMD' ]
  touch slurm-ddp_0.1.0-1+slurm22.05_amd64.deb slurm-ddp-plugin_0.1.0-1+slurm22.05_amd64.deb slurm-ddp-dev_0.1.0-1+slurm22.05_amd64.deb
  local pattern copied
  pattern=$(awk '$1 == "COPY" { print $2 }' "$here/packaging/container/Dockerfile")
  mapfile -t copied < <(compgen -G "$pattern")
  [ "${copied[*]}" = slurm-ddp_0.1.0-1+slurm22.05_amd64.deb ]
}

@test "continuous integration runs the gate on each push and every tier each night, on Debian 12" {
  /usr/bin/python3 -c 'import yaml' || skip "no yaml for Python on this machine (apt-get install python3-yaml)"
  run -0 /usr/bin/python3 - "$here" << 'PYTHON'
import sys, yaml
here = sys.argv[1]
sys.path.insert(0, f"{here}/tests/runner")
import tiers
workflow = yaml.safe_load(open(f"{here}/.github/workflows/ci.yml"))
assert set(workflow[True]) == {"push", "pull_request", "schedule", "workflow_dispatch"}, workflow  # `on` is read as true
for job in workflow["jobs"].values():
    assert job["container"]["image"] == "debian:12", job
    assert "./run-tests ${{ matrix.tiers }}" in [step.get("run") for step in job["steps"]], job
assert "strategy" not in workflow["jobs"]["gate"]
nightly = [set(job["tiers"].split()) for job in workflow["jobs"]["full"]["strategy"]["matrix"]["include"]]
assert set.union(*nightly) == set(tiers.ALL), nightly
# What needs a build has it in its own job.
assert all("build" in names or not names & set(tiers.NEED_BUILD) for names in nightly), nightly
PYTHON
  [[ $(tail -n 1 "$here/.ci/run") == "exec ./run-tests" ]]
}

# SPDX-License-Identifier: Apache-2.0
# The modulefiles of an installation, with the two programs that sites use: Environment Modules and
# Lmod. Does not need a cluster.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  [[ -n $build_dir ]] || { echo "no build directory; build first, or set SLURM_DDP_BUILD" >&2; return 1; }
  work=$(mktemp -d /var/tmp/slurm-ddp-test.XXXXXX)
  prefix="$work/a prefix"
  cmake --install "$build_dir" --prefix "$prefix" >"$work/install.log"
  version=$(basename "$(ls "$prefix"/share/modulefiles/slurm-ddp/*.lua)" .lua)
  export work prefix version MODULEPATH=$prefix/share/modulefiles
}

teardown_file() { rm -rf "$work"; }

# Runs the commands in a shell with `module`, and prints their effect.
with_environment_modules() {
  [[ -r /usr/share/modules/init/bash ]] || skip "no environment-modules on this machine"
  bash -c "source /usr/share/modules/init/bash; module purge; module use '$MODULEPATH'; $1"
}

# Debian's lmod conflicts with environment-modules and is not installed. Instead, its packages are
# unpacked and mounted over /usr in a separate mount namespace.
unpack_lmod() {
  command -v lmod >/dev/null || [[ -f /usr/share/lmod/lmod/libexec/lmod ]] && return
  ((EUID == 0)) || skip "needs root to lay Lmod's packages over /usr"
  [[ -d $work/lmod/usr ]] && return
  mkdir -p "$work/lmod" && cd "$work/lmod"
  apt-get download lmod lua5.3 lua-posix lua-filesystem lua-term lua-json lua-lpeg lua-bit32 >log 2>&1 ||
    skip "cannot download the package lmod and its dependencies: $(tail -1 log)"
  local package
  for package in *.deb; do dpkg -x "$package" .; done
  unshare --mount mount -t overlay -o "lowerdir=$work/lmod/usr:/usr" overlay /usr ||
    skip "cannot lay Lmod's packages over /usr (overlay mounts are forbidden here)"
}

with_lmod() {
  unpack_lmod
  local over_usr=true
  [[ ! -d $work/lmod/usr ]] || over_usr="mount -t overlay -o lowerdir='$work/lmod/usr':/usr overlay /usr"
  unshare --mount bash -c "$over_usr
    source /usr/share/lmod/lmod/init/bash; module use '$MODULEPATH'; $1"
}

readonly show='echo "home=$SLURM_DDP_HOME"; echo "path=${PATH%%:*}"; echo "cmake=${CMAKE_PREFIX_PATH%%:*}"'

readonly taken_back='[[ $PATH != *"$prefix"* && -z $SLURM_DDP_HOME$CMAKE_PREFIX_PATH ]] && echo "taken back"'

assert_loaded() {
  grep -qxF "home=$prefix" <<<"$output"
  grep -qxF "path=$prefix/bin" <<<"$output"
  grep -qxF "cmake=$prefix" <<<"$output"
}

@test "Environment Modules: load sets the paths, unload restores them" {
  run with_environment_modules "module load slurm-ddp; $show; ddp-launch --version"
  [ "$status" -eq 0 ]
  assert_loaded
  grep -qx "ddp-launch $version" <<<"$output"
  run with_environment_modules "module load slurm-ddp; module unload slurm-ddp; $taken_back"
  [[ $output == *"taken back" ]]
}

@test "Environment Modules: one version, with whatis and help; a second version conflicts" {
  run with_environment_modules "module -t avail slurm-ddp; module whatis slurm-ddp; module help slurm-ddp"
  [ "$(grep -cE "^slurm-ddp/[^ ]+$" <<<"$output")" -eq 1 ]
  [[ $output == *"distributed training job"*"srun --ddp python train.py"* ]]
  sed "s/$version/99.0/" "$MODULEPATH/slurm-ddp/$version" >"$MODULEPATH/slurm-ddp/99.0"
  MODULES_AUTO_HANDLING=0 run with_environment_modules "module load slurm-ddp/$version; module load slurm-ddp/99.0; module -t list"
  rm "$MODULEPATH/slurm-ddp/99.0"
  grep -q "conflict" <<<"$output"
  grep -qx "slurm-ddp/$version" <<<"$output"
}

@test "Lmod: load sets the paths, unload restores them" {
  unpack_lmod
  run with_lmod "module load slurm-ddp; $show; ddp-launch --version"
  [ "$status" -eq 0 ]
  assert_loaded
  grep -qx "ddp-launch $version" <<<"$output"
  run with_lmod "module load slurm-ddp; module unload slurm-ddp; $taken_back"
  [[ $output == *"taken back" ]]
}

@test "Lmod: one version, with whatis and help" {
  unpack_lmod
  run with_lmod "module -t avail slurm-ddp; module whatis slurm-ddp; module help slurm-ddp"
  [ "$(grep -cE "^slurm-ddp/[^ ]+$" <<<"$output")" -eq 1 ]
  [[ $output == *"distributed training job"*"srun --ddp python train.py"* ]]
}

@test "a staged installation contains the real prefix, not the staging directory" {
  DESTDIR=$work/stage cmake --install "$build_dir" --prefix /opt/slurm-ddp >/dev/null
  local files=$work/stage/opt/slurm-ddp/share
  grep -q '/opt/slurm-ddp' "$files/modulefiles/slurm-ddp/$version" "$files/modulefiles/slurm-ddp/$version.lua"
  [ -z "$(grep -rl "$work" "$files")" ]
  grep -qxE 'optional /opt/slurm-ddp/lib[^ ]*/slurm/ddp.so' "$files/slurm-ddp/plugstack.conf.d/zz-ddp.conf"
}

# SPDX-License-Identifier: Apache-2.0
# The installed plugin: its symbols, hardening, packages and manual pages. Does not need a cluster.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  export plugin=$build_dir/lib/slurm/ddp.so
  [[ -f $plugin ]] || { echo "no plugin in $build_dir" >&2; return 1; }
}

setup() { cd "$BATS_TEST_TMPDIR" || return; }

built_with_sanitizer() { grep -q '^SLURM_DDP_SANITIZE:STRING=.' "$build_dir/CMakeCache.txt"; }

@test "the plugin exports only SLURM's entry points" {
  nm -D --defined-only "$plugin" | awk '{ print $3 }' >names
  [ "$(grep -c '^slurm_spank_' names)" -ge 4 ]
  grep -qx plugin_version names
  run ! grep -vE '^(slurm_spank_[a-z_]+|plugin_(name|type|version)|spank_plugin_version)$' names
}

@test "the plugin needs only libc and SLURM's plugin interface" {
  built_with_sanitizer && skip "a sanitizer build needs the sanitizer's libraries"
  readelf -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >libraries
  grep -qx libc.so.6 libraries
  run ! grep -vE '^(libc\.so\.6|ld-linux.*|libm\.so\.6)$' libraries
  nm -D --undefined-only "$plugin" | awk '{ print $NF }' | grep -v '@GLIBC' >needed
  run ! grep -vE '^(spank_[a-z_]+|slurm_(error|spank_log)|__gmon_start__|_ITM_.*)$' needed
}

@test "the plugin is hardened: RELRO, immediate binding, no executable stack, no text relocations, canaries" {
  built_with_sanitizer && skip "a sanitizer build is only for tests"
  readelf -lW "$plugin" >segments
  grep -q GNU_RELRO segments
  grep GNU_STACK segments | grep -q ' RW '
  [ -z "$(grep GNU_STACK segments | grep RWE)" ]
  readelf -dW "$plugin" >dynamic
  grep -q BIND_NOW dynamic
  run ! grep -qE 'TEXTREL|RPATH|RUNPATH' dynamic
  nm -D --undefined-only "$plugin" | grep -q __stack_chk_fail
}

@test "the plugin has no constructors of standard streams, because srun would run them" {
  [ -z "$(nm -C "$plugin" | grep 'ios_base::Init')" ]
}

make_package() { # GENERATOR
  cpack --config "$build_dir/CPackConfig.cmake" -G "$1" -B "$PWD/packages" >log 2>&1 || { cat log; return 1; }
}

check_tree() { # ROOT
  [ -x "$1/usr/bin/ddp-launch" ]
  local so
  so=$(cd "$1" && find usr -name ddp.so)
  [ -n "$so" ]
  # It also starts in containers.
  file "$1/${so%/*}/ddp-guard" | grep 'statically linked'
  grep -qx "optional /$so" "$1/usr/share/slurm-ddp/plugstack.conf.d/zz-ddp.conf"
  grep -q 'built for SLURM [0-9]*\.[0-9]*,' "$1/usr/share/slurm-ddp/plugstack.conf.d/zz-ddp.conf"
  [ -s "$1/usr/share/man/man8/ddp.8" ]
  [ -s "$1/usr/share/man/man1/srun-ddp.1" ]
  grep -q 'set prefix {/usr}' "$1"/usr/share/modulefiles/slurm-ddp/[0-9]*[0-9]
  # The package must not name paths of the machine that built it.
  run ! grep -rlF "$BATS_TEST_TMPDIR" "$1"
}

@test "Debian packages: their contents, and the SLURM release that they are for" {
  command -v dpkg-deb >/dev/null || skip "no dpkg on this machine"
  make_package DEB
  local release package
  release=$(sed -n 's/^SLURM_DDP_SLURM_RELEASE:INTERNAL=//p' "$build_dir/CMakeCache.txt")
  [ -n "$release" ]
  for package in packages/*.deb; do dpkg -x "$package" root; done
  check_tree root
  package=$(ls packages/slurm-ddp-plugin_*.deb)
  [[ $(dpkg-deb -f "$package" Version) == *"-1+slurm$release" ]]
  [[ $(dpkg-deb -f "$package" Depends) == *"(>= $release)"*"(<< "* ]]
  root/usr/bin/ddp-launch --version
}

# bats test_tags=full
@test "RPM packages: their contents, and the SLURM release that they are for" {
  command -v rpmbuild >/dev/null || skip "no rpmbuild on this machine (apt-get install rpm)"
  make_package RPM
  local release package
  release=$(sed -n 's/^SLURM_DDP_SLURM_RELEASE:INTERNAL=//p' "$build_dir/CMakeCache.txt")
  mkdir root
  for package in packages/*.rpm; do rpm2archive - <"$package" | tar -xz -C root; done
  check_tree root
  package=$(ls packages/slurm-ddp-plugin-*.rpm)
  [[ $package == *"-1.sl$release."* ]]
  rpm -qp --requires "$package" | grep -qx "slurm >= $release"
}

@test "manual pages render without a warning" {
  command -v man >/dev/null || skip "no man on this machine (apt-get install man-db)"
  local page
  for page in "$project_root"/docs/man/*.[1-8]; do
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings=w -l "$page" >text 2>warnings </dev/null
    cat warnings
    [ ! -s warnings ]
    grep -q '^NAME' text
  done
}

@test "srun-ddp(1) documents every item of ddp-launch --help" {
  ddp-launch --help | sed -n '/^SPEC is/,/^$/s/^  \([a-z_]*\)[ =].*/\1/p' | sort -u >items
  [ "$(wc -l <items)" -ge 12 ]
  local item
  while read -r item; do
    grep -qE "^\.(B|BI|BR) (.*[\" ])?$item(=| |\$)" "$project_root/docs/man/srun-ddp.1" || { echo "missing: $item"; return 1; }
  done <items
}

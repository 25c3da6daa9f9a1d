// SPDX-License-Identifier: Apache-2.0
// The site's /etc/slurm-ddp/fabric.conf: facts about its fabric that no node can detect, such as
// traffic classes, NCCL's version and the preset to use. docs/fabric.md describes the format.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "spank_plugin/fabric/site/presets.h"

namespace ddp::fabric {

struct NcclVersion {
  int major = 0;
  int minor = 0;

  bool operator==(const NcclVersion&) const = default;
  bool operator<(const NcclVersion& other) const noexcept {
    return std::tie(major, minor) < std::tie(other.major, other.minor);
  }
};

struct SiteFile {
  std::string path;                         // empty if there is no file
  std::optional<std::string> preset;        // preset = NAME
  std::optional<std::string> interface;     // interface = NAME
  std::optional<std::string> ib_hca;        // ib_hca = mlx5_0:1,mlx5_1:1
  std::optional<NcclVersion> nccl_version;  // nccl_version = 2.18
  bool bind_ucx = false;                    // ucx = bind
  std::vector<Preset> presets;              // [preset NAME]
};

// `path` is used in messages. Throws FabricError naming file, line and key of the first error: the
// file is used as a whole or not at all.
SiteFile parse_site_file(std::string_view text, const std::string& path);

}  // namespace ddp::fabric

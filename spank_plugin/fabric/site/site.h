// SPDX-License-Identifier: Apache-2.0
// The site's file: its contents, and any problems with it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "spank_plugin/fabric/site/site_file.h"

namespace ddp::fabric {

struct Site {
  SiteFile file;
  std::vector<std::string> problems;  // one sentence each: why the file is not used
};

// The required owner of the file. The plugin acts for every user of the machine and trusts only
// root.
enum class SiteOwner { any, root };

// Reads etc/slurm-ddp/fabric.conf below `root`, which must be a regular file of at most 64 KiB.
// Inside a container, "/" is the container's root, which normally does not have the file: a program
// that starts tasks in a container must read the file before entering. Throws only std::bad_alloc.
Site read_site(const std::filesystem::path& root, SiteOwner owner);

}  // namespace ddp::fabric

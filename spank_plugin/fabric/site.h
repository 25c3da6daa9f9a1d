// The site's file as it was found: what it says, and what is wrong with it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "spank_plugin/fabric/site_file.h"

namespace ddp::fabric {

struct Site {
  SiteFile file;
  std::vector<std::string> problems;  // one sentence each: why it is not used
};

// Whose file it must be. The plugin acts for every user of the machine and takes root's word only.
enum class SiteOwner { anybody, root };

// etc/slurm-ddp/fabric.conf below `root`: at most 64 KiB of a regular file. In a container that is
// the container's, which has none: who starts tasks in one must read it before they enter it.
// Throws std::bad_alloc only.
Site read_site(const std::filesystem::path& root, SiteOwner owner);

}  // namespace ddp::fabric

// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/site/site.h"

#include "base/open_file.h"
#include "spank_plugin/fabric/files/error.h"

namespace ddp::fabric {

Site read_site(const std::filesystem::path& root, SiteOwner owner) {
  constexpr const char* kSiteFile = "etc/slurm-ddp/fabric.conf";
  constexpr std::size_t kMaxBytes = 65'536;
  Site site;
  const OpenFile opened(root / kSiteFile);
  if (!opened.is_regular()) return site;
  const std::string shown_as = std::string("/") + kSiteFile;
  if (owner == SiteOwner::root && !opened.is_roots_alone()) {
    site.problems.push_back(shown_as +
                            " is not used: it must belong to root, and be writable only by root");
    return site;
  }
  std::string text(kMaxBytes + 1, '\0');
  const auto size = opened.read(text.data(), text.size());
  if (!size) return site;
  text.resize(*size);
  if (text.size() > kMaxBytes) {
    site.problems.push_back(shown_as + " is not used: it is larger than 64 KiB");
    return site;
  }
  try {
    site.file = parse_site_file(text, shown_as);
  } catch (const FabricError& error) {
    site.problems.push_back(std::string(error.what()) + "; the file is not used");
  }
  return site;
}

}  // namespace ddp::fabric

// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/container_plugin.h"

#include <link.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "spank_plugin/spank/command_line.h"

namespace ddp::spank {
namespace {

struct Found {
  bool this_plugin = false;
  bool pyxis_later = false;
  std::string_view earlier_copy;
};

bool holds(const dl_phdr_info& library, std::uintptr_t address) {
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const auto& part = library.dlpi_phdr[i];
    const std::uintptr_t begin = library.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && begin <= address && address < begin + part.p_memsz) return true;
  }
  return false;
}

// dl_iterate_phdr calls this in the order in which the libraries were loaded.
int look_at_library(dl_phdr_info* library, std::size_t /*size*/, void* result) {
  static const char kOwn = 0;
  auto& found = *static_cast<Found*>(result);
  const std::string_view path = library->dlpi_name == nullptr ? "" : library->dlpi_name;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (holds(*library, reinterpret_cast<std::uintptr_t>(&kOwn))) found.this_plugin = true;
  if (file == "ddp.so" && !found.this_plugin) found.earlier_copy = path;
  const bool is_pyxis = file == "spank_pyxis.so";
  if (is_pyxis && found.this_plugin) found.pyxis_later = true;
  return 0;
}

}  // namespace

std::string find_order_problem() noexcept {
  try {
    Found found;
    dl_iterate_phdr(look_at_library, &found);
    if (!found.pyxis_later) return "";
    return "ddp.so comes before spank_pyxis.so in plugstack.conf, and must come after it: in "
           "containers the image's hooks overwrite RANK and MASTER_ADDR; rename its file in "
           "plugstack.conf.d to zz-ddp.conf";
  } catch (...) {  // out of memory
    return "";
  }
}

std::string find_earlier_copy() noexcept {
  try {
    Found found;
    dl_iterate_phdr(look_at_library, &found);
    return std::string(found.earlier_copy);
  } catch (...) {  // out of memory
    return "";
  }
}

bool wants_container() noexcept {
  for (const auto* option : {"SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image",
                             "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_name"}) {
    if (std::getenv(option) != nullptr) return true;
  }
  return has_own_option({"--container-image", "--container-name"});
}

}  // namespace ddp::spank

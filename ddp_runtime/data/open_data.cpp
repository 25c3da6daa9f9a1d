#include "ddp_runtime/data/open_data.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/data/readers.h"

namespace ddp::data {
namespace {

namespace fs = std::filesystem;

// Where the data sets that come with the project lie: said by the user, beside an installed
// program, or in the source tree.
fs::path bundled(const fs::path& relative) {
  std::vector<fs::path> folders;
  if (const char* folder = std::getenv("SLURM_DDP_DATASETS")) folders.emplace_back(folder);
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    folders.push_back(program.parent_path().parent_path() / SLURM_DDP_DATASETS_INSTALLED);
  }
  folders.emplace_back(SLURM_DDP_DATASETS_SOURCE);
  for (const auto& folder : folders) {
    if (fs::exists(folder / relative, error)) return folder / relative;
  }
  throw UsageError(
      fmt::format("cannot find {}; set SLURM_DDP_DATASETS to the 'datasets' folder of the project",
                  relative.string()));
}

}  // namespace

DataPair open_data(const std::string& specification, const SyntheticShape& synthetic,
                   std::uint64_t seed) {
  const std::size_t colon = specification.find(':');
  const std::string kind = specification.substr(0, colon);
  const std::string place = colon == std::string::npos ? "" : specification.substr(colon + 1);
  if (kind == "digits" && place.empty()) return read_digits(bundled("digits/digits.csv.gz"));
  if (kind == "mnist" && !place.empty()) return read_mnist(place);
  if (kind == "synthetic" && place.empty()) {
    return make_synthetic(synthetic.input, synthetic.classes, synthetic.samples, seed);
  }
  throw UsageError(
      fmt::format("cannot read data '{}'; use digits, mnist:DIR or synthetic", specification));
}

}  // namespace ddp::data

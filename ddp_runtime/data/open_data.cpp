// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/open_data.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/errors.h"
#include "ddp_runtime/data/readers.h"

namespace ddp::data {
namespace {

namespace fs = std::filesystem;

// The directory of the bundled data sets: set by the user, beside an installed program, or in the
// source tree.
fs::path bundled(const fs::path& relative) {
  std::vector<fs::path> directories;
  if (const char* directory = std::getenv("SLURM_DDP_DATASETS"))
    directories.emplace_back(directory);
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    directories.push_back(program.parent_path().parent_path() / SLURM_DDP_DATASETS_INSTALLED);
  }
  directories.emplace_back(SLURM_DDP_DATASETS_SOURCE);
  for (const auto& directory : directories) {
    if (fs::exists(directory / relative, error)) return directory / relative;
  }
  throw UsageError(fmt::format(
      "cannot find {}; set SLURM_DDP_DATASETS to the 'datasets' directory of the project",
      relative.string()));
}

DataPair read(const std::string& specification, const DataOptions& options) {
  const std::size_t colon = specification.find(':');
  const std::string kind = specification.substr(0, colon);
  const std::string place = colon == std::string::npos ? "" : specification.substr(colon + 1);
  if (place.empty()) {
    const auto& s = options.synthetic;
    if (specification == "digits") return read_digits(bundled("digits/digits.csv.gz"));
    if (specification == "synthetic") {
      return make_synthetic(s.input, s.classes, s.samples, options.seed);
    }
  } else {
    if (kind == "mnist") return read_mnist(place);
    if (kind == "cifar10") return read_cifar10(place);
    if (kind == "text") return read_text(place, options.context);
    if (kind == "hdf5") return read_hdf5(place);
  }
  throw UsageError(
      fmt::format("cannot read data '{}'; use digits, mnist:DIR, cifar10:DIR, text:FILE, hdf5:FILE "
                  "or synthetic",
                  specification));
}

}  // namespace

DataPair open_data(const std::string& specification, const DataOptions& options) {
  auto data = read(specification, options);
  if (options.augmentation.any()) {
    data.train =
        std::make_shared<const AugmentedImages>(data.train, options.augmentation, options.seed);
  }
  return data;
}

}  // namespace ddp::data

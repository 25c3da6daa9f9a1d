// The data sets that come with a reader.
#pragma once

#include <cstdint>
#include <filesystem>

#include "ddp_runtime/data/dataset.h"

namespace ddp::data {

// The 1,797 handwritten digits (8 x 8) that come with the project, a tenth held out. `file` is
// digits.csv.gz.
DataPair read_digits(const std::filesystem::path& file);

// A folder with the four IDX files of MNIST or a set of the same form (train-images-idx3-ubyte,
// train-labels-idx1-ubyte, t10k-...; also with a dot before idx, also gzipped).
DataPair read_mnist(const std::filesystem::path& folder);

// Random inputs whose class is a fixed random function of them, so that there is something to
// learn. The same for the same arguments.
DataPair make_synthetic(const std::vector<std::int64_t>& input_shape, std::int64_t classes,
                        std::int64_t samples, std::uint64_t seed);

}  // namespace ddp::data

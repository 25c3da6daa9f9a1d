// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "ddp_runtime/check/node/gpu/gpu_copies.h"

namespace ddp::check {
namespace {

nlohmann::json json_of_result(const CopyResult& result) {
  nlohmann::json object{{"measured", result.measured}, {"trouble", result.trouble}};
  if (!result.measured) return object;
  object["GBps"] = result.bytes_per_second / 1e9;
  object["wrong_bytes"] = result.wrong_bytes;
  return object;
}

}  // namespace

nlohmann::json json_of(const CopyFacts& copies) {
  nlohmann::json gpus = nlohmann::json::array();
  for (const auto& gpu : copies.gpus) {
    gpus.push_back({{"bus_address", gpu.bus_address},
                    {"trouble", gpu.trouble},
                    {"to_gpu", json_of_result(gpu.to_gpu)},
                    {"from_gpu", json_of_result(gpu.from_gpu)}});
  }
  nlohmann::json pairs = nlohmann::json::array();
  for (const auto& pair : copies.pairs) {
    pairs.push_back({{"from", copies.gpus.at(pair.from).bus_address},
                     {"to", copies.gpus.at(pair.to).bus_address},
                     {"direct", pair.direct},
                     {"result", json_of_result(pair.result)}});
  }
  return {{"trouble", copies.trouble},
          {"unfinished", copies.unfinished},
          {"gpus", gpus},
          {"pairs", pairs}};
}

}  // namespace ddp::check

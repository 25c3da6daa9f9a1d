// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/gpu_facts.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace ddp::check {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<const char*, GpuReading GpuFacts::*>, 10> kReadings{
    {{"uncorrected", &GpuFacts::uncorrected},
     {"throttle", &GpuFacts::throttle},
     {"pages_pending", &GpuFacts::pages_pending},
     {"rows_pending", &GpuFacts::rows_pending},
     {"rows_failed", &GpuFacts::rows_failed},
     {"links_up", &GpuFacts::links_up},
     {"links_down", &GpuFacts::links_down},
     {"memory_total", &GpuFacts::memory_total},
     {"memory_used", &GpuFacts::memory_used},
     {"processes_known", &GpuFacts::processes_known}}};

json json_of(const GpuFacts& gpu) {
  json result{{"name", gpu.name},
              {"bus_address", gpu.bus_address},
              {"trouble", gpu.trouble},
              {"processes", gpu.processes}};
  for (const auto& [key, reading] : kReadings) {
    const GpuReading& one = gpu.*reading;
    result[key] = {{"trouble", one.trouble}};
    if (one.value) result[key]["value"] = *one.value;
  }
  return result;
}

GpuFacts gpu_from(const json& object) {
  GpuFacts gpu;
  object.at("name").get_to(gpu.name);
  object.at("bus_address").get_to(gpu.bus_address);
  object.at("trouble").get_to(gpu.trouble);
  object.at("processes").get_to(gpu.processes);
  for (const auto& [key, reading] : kReadings) {
    GpuReading& one = gpu.*reading;
    object.at(key).at("trouble").get_to(one.trouble);
    if (object.at(key).contains("value")) one.value = object.at(key).at("value");
  }
  return gpu;
}

}  // namespace

std::string to_text(const NvmlFacts& facts) {
  json gpus = json::array();
  for (const auto& gpu : facts.gpus) gpus.push_back(json_of(gpu));
  const json all{{"library_found", facts.library_found},
                 {"trouble", facts.trouble},
                 {"driver", facts.driver},
                 {"gpus", std::move(gpus)}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

NvmlFacts nvml_facts_from(const std::string& text) {
  const json all = json::parse(text);
  NvmlFacts facts;
  all.at("library_found").get_to(facts.library_found);
  all.at("trouble").get_to(facts.trouble);
  all.at("driver").get_to(facts.driver);
  for (const auto& gpu : all.at("gpus")) facts.gpus.push_back(gpu_from(gpu));
  return facts;
}

}  // namespace ddp::check

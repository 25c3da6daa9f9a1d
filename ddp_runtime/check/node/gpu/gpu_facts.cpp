// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/gpu/gpu_facts.h"

#include <array>
#include <utility>

#include "base/json/bounded_json.h"

namespace ddp::check {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<const char*, GpuReading GpuFacts::*>, 25> kReadings{
    {{"recovery", &GpuFacts::recovery},
     {"uncorrected", &GpuFacts::uncorrected},
     {"uncorrected_ever", &GpuFacts::uncorrected_ever},
     {"corrected", &GpuFacts::corrected},
     {"throttle", &GpuFacts::throttle},
     {"throttle_lasting", &GpuFacts::throttle_lasting},
     {"sm_clock_MHz", &GpuFacts::sm_clock},
     {"sm_clock_max_MHz", &GpuFacts::sm_clock_max},
     {"utilization_percent", &GpuFacts::utilization},
     {"pcie_generation", &GpuFacts::pcie_generation},
     {"pcie_generation_max", &GpuFacts::pcie_generation_max},
     {"pcie_width", &GpuFacts::pcie_width},
     {"pcie_width_max", &GpuFacts::pcie_width_max},
     {"pages_pending", &GpuFacts::pages_pending},
     {"rows_pending", &GpuFacts::rows_pending},
     {"rows_failed", &GpuFacts::rows_failed},
     {"links_up", &GpuFacts::links_up},
     {"links_down", &GpuFacts::links_down},
     {"links_to_switch", &GpuFacts::links_to_switch},
     {"mig", &GpuFacts::mig},
     {"mig_devices", &GpuFacts::mig_devices},
     {"persistence", &GpuFacts::persistence},
     {"memory_total", &GpuFacts::memory_total},
     {"memory_used", &GpuFacts::memory_used},
     {"processes_known", &GpuFacts::processes_known}}};

json json_of(const GpuReading& reading) {
  json result{{"trouble", reading.trouble}};
  if (reading.value) result["value"] = *reading.value;
  return result;
}

GpuReading reading_from(const json& object) {
  GpuReading reading;
  object.at("trouble").get_to(reading.trouble);
  if (object.contains("value")) reading.value = object.at("value");
  return reading;
}

json json_of(const NvLink& link) {
  return {{"number", link.number},
          {"up", link.up},
          {"errors_known", link.errors_known},
          {"replays", link.replays},
          {"recoveries", link.recoveries},
          {"crc_errors", link.crc_errors}};
}

NvLink link_from(const json& object) {
  return {object.at("number"),  object.at("up"),         object.at("errors_known"),
          object.at("replays"), object.at("recoveries"), object.at("crc_errors")};
}

json json_of(const GpuPair& pair) {
  json result{{"first", pair.first},
              {"second", pair.second},
              {"access", json_of(pair.access)},
              {"nvlink", json_of(pair.nvlink)}};
  if (pair.distance) result["distance"] = *pair.distance;
  return result;
}

// Throws std::out_of_range if there is no such GPU.
GpuPair pair_from(const json& object, const std::vector<GpuFacts>& gpus) {
  GpuPair pair{object.at("first"), object.at("second"), {}, {}, {}};
  static_cast<void>(gpus.at(pair.first));
  static_cast<void>(gpus.at(pair.second));
  if (object.contains("distance")) pair.distance = object.at("distance");
  pair.access = reading_from(object.at("access"));
  pair.nvlink = reading_from(object.at("nvlink"));
  return pair;
}

json json_of(const GpuFacts& gpu) {
  json result{{"name", gpu.name},
              {"bus_address", gpu.bus_address},
              {"trouble", gpu.trouble},
              {"needs_reset", gpu.needs_reset},
              {"read_under_load", gpu.read_under_load},
              {"processes", gpu.processes}};
  for (const auto& [key, reading] : kReadings) {
    result[key] = json_of(gpu.*reading);
  }
  result["links"] = json::array();
  for (const auto& link : gpu.links) result["links"].push_back(json_of(link));
  return result;
}

GpuFacts gpu_from(const json& object) {
  GpuFacts gpu;
  object.at("name").get_to(gpu.name);
  object.at("bus_address").get_to(gpu.bus_address);
  object.at("trouble").get_to(gpu.trouble);
  object.at("needs_reset").get_to(gpu.needs_reset);
  object.at("read_under_load").get_to(gpu.read_under_load);
  object.at("processes").get_to(gpu.processes);
  for (const auto& [key, reading] : kReadings) {
    gpu.*reading = reading_from(object.at(key));
  }
  for (const auto& link : object.at("links")) gpu.links.push_back(link_from(link));
  return gpu;
}

}  // namespace

std::string to_text(const NvmlFacts& facts) {
  json gpus = json::array();
  for (const auto& gpu : facts.gpus) gpus.push_back(json_of(gpu));
  json pairs = json::array();
  for (const auto& pair : facts.pairs) pairs.push_back(json_of(pair));
  const json all{{"library_found", facts.library_found},
                 {"trouble", facts.trouble},
                 {"driver", facts.driver},
                 {"not_checked", facts.not_checked},
                 {"gpus", std::move(gpus)},
                 {"pairs", std::move(pairs)}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

NvmlFacts nvml_facts_from(const std::string& text) {
  const json all = parse_bounded_json(text);
  NvmlFacts facts;
  all.at("library_found").get_to(facts.library_found);
  all.at("trouble").get_to(facts.trouble);
  all.at("driver").get_to(facts.driver);
  all.at("not_checked").get_to(facts.not_checked);
  for (const auto& gpu : all.at("gpus")) facts.gpus.push_back(gpu_from(gpu));
  for (const auto& pair : all.at("pairs")) facts.pairs.push_back(pair_from(pair, facts.gpus));
  return facts;
}

}  // namespace ddp::check

// SPDX-License-Identifier: Apache-2.0
// Kept separate from render.cpp so that the plugin, which never writes JSON, does not link the JSON
// library.
#include <nlohmann/json.hpp>

#include "spank_plugin/launch/plan/render.h"

namespace ddp::launch {

std::string render_json(const Plan& plan) {
  nlohmann::ordered_json json = {
      {"schema", "slurm-ddp/plan/1"}, {"step", plan.step}, {"node", plan.node},
      {"mode", word_for(plan.mode)},  {"rank", plan.rank}, {"task_count", plan.task_count},
      {"node_count", plan.node_count}};
  json["variables"] = nlohmann::ordered_json::array();
  for (const auto& entry : plan.entries) {
    json["variables"].push_back({{"name", entry.name},
                                 {"value", entry.value},
                                 {"rule", entry.rule},
                                 {"source", entry.source},
                                 {"kept", entry.kept},
                                 {"removed", entry.removed}});
  }
  json["notes"] = plan.notes;
  for (const auto& note : plan.node_notes) json["notes"].push_back(note);
  json["remarks"] = plan.remarks;
  json["fabric"] = plan.fabric;
  // Values may contain invalid UTF-8, which is replaced instead of throwing.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ddp::launch

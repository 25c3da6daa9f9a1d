// SPDX-License-Identifier: Apache-2.0
// Schedules of events as files, with the actions that must follow. The first line of a file is the
// allocation and the settings; each other one has the time, events, and the actions after them.
// Notes are for people, and only compared where a line has one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/elastic/event_json.h"
#include "ddp_runtime/elastic/supervisor.h"

namespace ddp::elastic {
namespace {

using nlohmann::json;

std::vector<std::filesystem::path> vector_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(SLURM_DDP_VECTORS)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

Settings settings_of(const json& given) {
  Settings settings;
  settings.min_nodes = given.at("min");
  settings.max_nodes = given.at("max");
  settings.ranks_per_node = given.value("ranks_per_node", 1);
  settings.max_restarts = given.value("max_restarts", settings.max_restarts);
  settings.max_failed_launches = given.value("max_failed_launches", settings.max_failed_launches);
  settings.launch_pause = given.value("launch_pause", settings.launch_pause);
  settings.can_requeue = given.value("can_requeue", false);
  if (given.contains("sizes")) settings.sizes = given.at("sizes").get<std::vector<std::size_t>>();
  return settings;
}

// Whether all that is expected of an action is there.
bool matches(const json& action, const json& expected) {
  return std::ranges::all_of(expected.items(), [&](const auto& field) {
    return action.contains(field.key()) && action.at(field.key()) == field.value();
  });
}

class Vectors : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Vectors, GiveTheirActions) {
  std::ifstream file(GetParam());
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const auto given = json::parse(line).at("given");
  Supervisor supervisor(settings_of(given), given.at("nodes"), given.value("switches", Switches()));
  int number = 1;
  while (std::getline(file, line)) {
    SCOPED_TRACE("line " + std::to_string(++number) + ": " + line);
    const auto moment = json::parse(line);
    std::vector<json> actions;
    std::vector<std::string> notes;
    for (const auto& event : moment.at("events")) {
      for (const auto& action : supervisor.handle(event_from_json(event), moment.at("at"))) {
        if (const auto* note = std::get_if<Note>(&action)) {
          notes.push_back(note->text);
        } else {
          actions.push_back(json_of(action));
        }
      }
    }
    const auto& expected = moment.at("actions");
    ASSERT_EQ(actions.size(), expected.size()) << json(actions).dump();
    for (std::size_t i = 0; i < actions.size(); ++i) {
      EXPECT_TRUE(matches(actions[i], expected[i])) << actions[i] << " instead of " << expected[i];
    }
    if (moment.contains("note")) {
      EXPECT_THAT(notes, testing::Contains(moment.at("note").get<std::string>()));
    }
    if (moment.contains("restarts_left")) {
      EXPECT_EQ(supervisor.restarts_left(), moment.at("restarts_left").get<int>());
    }
  }
  EXPECT_GT(number, 1);
}

INSTANTIATE_TEST_SUITE_P(Files, Vectors, testing::ValuesIn(vector_files()),
                         [](const auto& param_info) {
                           return "V" + param_info.param.stem().string();
                         });

}  // namespace
}  // namespace ddp::elastic

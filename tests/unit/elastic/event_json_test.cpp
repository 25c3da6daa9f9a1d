// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/event_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/error_of.h"

namespace ddp::elastic {
namespace {

TEST(EventJson, ReadsWhatItWrites) {
  const std::vector<Event> events = {Begin{},
                                     NodeUp{"a"},
                                     NodeLost{"b", "silent"},
                                     RankReady{2, 3},
                                     RankEnded{2, 3, 75, 0, false},
                                     RankEnded{2, 3, 0, 9, true},
                                     Told{2, 3, "out of memory"},
                                     Told{2, 3, "unknown model", true},
                                     RankSilent{2, 3},
                                     RankAnswered{2, 3},
                                     Restoring{2},
                                     Training{2, 41229},
                                     Progress{2, 41230},
                                     Progress{2, 41230, 0.25, 0.0, 3},
                                     Kept{2, {Tier::memory, 7}},
                                     Kept{2, {Tier::disk, 8}},
                                     ExecutorGone{2},
                                     Checked{"a", false, "memory.ecc"},
                                     Checked{"a", true, ""},
                                     Signaled{15},
                                     Tick{}};
  for (const auto& event : events) {
    const auto object = json_of(event);
    const auto again = event_from_json(object);
    EXPECT_EQ(again.index(), event.index()) << object;
    EXPECT_EQ(json_of(again), object);
  }
}

TEST(EventJson, RefusesAnythingElse) {
  for (const auto* text :
       {R"([])", R"(7)", R"({})", R"({"event": 7})", R"({"event": "explode"})",
        R"({"event": "rank_ready", "generation": 1})",
        R"({"event": "rank_ready", "generation": 1, "rank": "3"})",
        R"({"event": "rank_ready", "generation": 1, "rank": 3000000000})",
        R"({"event": "rank_ready", "generation": 1, "rank": 0.5})",
        R"({"event": "checked", "node": "a", "healthy": "yes"})",
        R"({"event": "training", "generation": 1})",
        R"({"event": "progress", "generation": 1, "step": 1, "step_seconds": -1})",
        R"({"event": "progress", "generation": 1, "step": 1, "saves": 0.5})",
        R"({"event": "kept", "generation": 1, "tier": "tape", "step": 1})"}) {
    EXPECT_NE(error_of([&] { event_from_json(nlohmann::json::parse(text)); }), "") << text;
  }
}

TEST(EventJson, CutsWhatProgramsTell) {
  const auto event = event_from_json(
      {{"event", "told"}, {"generation", 1}, {"rank", 0}, {"text", std::string(1 << 20, 'x')}});
  EXPECT_EQ(std::get<Told>(event).text.size(), 4096U);
}

}  // namespace
}  // namespace ddp::elastic

// SPDX-License-Identifier: Apache-2.0
// Parsers with valid examples that are mutated at random: for any text, a parser returns a result
// within its limits or throws UsageError. Intended for builds with sanitizers.
// SLURM_DDP_FUZZ_ITERATIONS sets the number of texts for each parser (default 3,000), and
// SLURM_DDP_FUZZ_SEED replaces the fixed seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "base/errors.h"
#include "base/hostlist.h"
#include "base/text.h"
#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/ephemeral_ports.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/hostfile.h"
#include "spank_plugin/launch/step/marker.h"
#include "spank_plugin/launch/step/port_ranges.h"
#include "spank_plugin/launch/step/process_map.h"
#include "spank_plugin/launch/step/socket_table.h"
#include "spank_plugin/launch/step/switch_map.h"
#include "spank_plugin/launch/step/tasks_per_node.h"

namespace ddp::launch {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : parse_decimal(text, 1'000'000'000).value_or(otherwise);
}

class Mutator {
 public:
  Mutator(std::vector<std::string> examples, std::uint64_t seed)
      : examples_(std::move(examples)), random_(seed) {}

  std::string next() {
    std::string text = examples_[below(examples_.size())];
    for (std::size_t i = below(6); i > 0; --i) mutate(text);
    return text;
  }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }
  std::size_t place_in(const std::string& text) { return below(text.size() + 1); }

  void mutate(std::string& text) {
    static const std::vector<std::string> kPieces = {
        "[",      "]",  "-",     ",",     "(x", ")",          "=",
        "0",      "00", "65535", "65536", "1-", "4294967295", "18446744073709551616",
        "n[1-9]", ";",  ":",     "/",     " ",  "\n",         "%",
        "#",      "*2"};
    const auto at = place_in(text);
    switch (below(6)) {
      case 0:
        return void(text.insert(at, kPieces[below(kPieces.size())]));
      case 1:
        return void(text.insert(at, 1, static_cast<char>(below(256))));
      case 2:
        return void(text.erase(at, below(4)));
      case 3:
        return void(text.insert(at, text.substr(place_in(text), below(12))));
      case 4:
        return void(text.insert(at, examples_[below(examples_.size())].substr(0, below(24))));
      default:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
    }
  }

  std::vector<std::string> examples_;
  std::mt19937_64 random_;
};

// Runs `parse` on mutated examples. It may throw LaunchError; any other exception fails the test.
// Returns the number of accepted texts, because a fuzzer whose texts are all rejected, or all
// accepted, tests nothing.
std::uint64_t fuzz(const std::vector<std::string>& examples,
                   const std::function<void(const std::string&)>& parse) {
  Mutator mutator(examples, number_from("SLURM_DDP_FUZZ_SEED", 1));
  const std::uint64_t iterations = number_from("SLURM_DDP_FUZZ_ITERATIONS", 3000);
  std::uint64_t accepted = 0;
  for (std::uint64_t i = 0; i < iterations && !testing::Test::HasFailure(); ++i) {
    const std::string text = mutator.next();
    SCOPED_TRACE(text);
    try {
      parse(text);
      ++accepted;
    } catch (const UsageError& error) {
      EXPECT_LT(std::string(error.what()).size(), 2000U) << "a message must be readable";
    }
  }
  return accepted;
}

TEST(Fuzz, NodeList) {
  const auto accepted =
      fuzz({"n1", "n[001,007-015],x2", "r[1-2]n[03,05-07]", "n[8-11]-ib", "a,b[2-3]"},
           [](const std::string& text) {
             const auto names = expand_hostlist(text);
             EXPECT_LE(names.size(), kMaxHosts);
             for (const auto& name : names) EXPECT_TRUE(is_host_or_address(name));
           });
  EXPECT_GT(accepted, 0U);
}

TEST(Fuzz, TasksPerNode) {
  const auto accepted = fuzz({"4,1", "2(x2)", "1,2(x3),4(x1000)"}, [](const std::string& text) {
    const auto layout = TasksPerNode::parse(text);
    EXPECT_LE(layout.nodes(), kMaxHosts);
    EXPECT_EQ(layout.before(layout.nodes()), layout.tasks());
  });
  EXPECT_GT(accepted, 0U);
}

TEST(Fuzz, PortRanges) {
  const auto accepted = fuzz({"20086-20088", "1,3-5", "65535"}, [](const std::string& text) {
    for (const auto port : all_ports(parse_port_ranges(text, "ports"))) EXPECT_GE(port, 1);
  });
  EXPECT_GT(accepted, 0U);
}

TEST(Fuzz, Spec) {
  const auto accepted =
      fuzz({"auto", "torchrun,rdzv=c10d,verbose", "rank,master_addr=node7,master_port=29500",
            "order=switch,threads=8,gpus=shared,local_rank=device", "explain=json,tf_config=no"},
           [](const std::string& text) {
             Settings settings;
             apply(settings, parse_spec(text, "--ddp"), Origin::command_line);
             EXPECT_EQ(decode_settings(encode_settings(settings)), settings);
           });
  EXPECT_GT(accepted, 0U);
}

TEST(Fuzz, SiteArguments) {
  fuzz({"default=auto port_base=50000 port_count=100", "master_addr=10.0.0.1 verbose=yes",
        "threads=off gpus=shared order=packed"},
       [](const std::string& text) {
         Settings settings;
         const auto arguments = split(text, ' ');
         EXPECT_LE(apply_site_arguments(settings, arguments).size(), arguments.size() + 1);
         EXPECT_LE(settings.computed_ports.value.first, settings.computed_ports.value.last);
         EXPECT_EQ(decode_settings(encode_settings(settings)), settings);
       });
}

TEST(Fuzz, EncodedSettings) {
  Settings settings;
  apply(settings, parse_spec("torchrun,master_port=5,order=switch", "x"), Origin::command_line);
  const auto accepted =
      fuzz({encode_settings(settings), encode_settings({})}, [](const std::string& text) {
        const Settings decoded = decode_settings(text);
        EXPECT_EQ(decode_settings(encode_settings(decoded)), decoded);
      });
  EXPECT_GT(accepted, 0U);
}

TEST(Fuzz, Marker) {
  fuzz({"12.0:MASTER_ADDR=0a1b2c3d,MASTER_PORT:23001-23003", "1.1::"}, [](const std::string& text) {
    const auto marker = parse_marker(text);
    if (marker) {
      EXPECT_EQ(format_marker(*marker), text);
    }
  });
}

TEST(Fuzz, ProcessMap) {
  fuzz({"(vector,(2,1,2),(0,2,1))", "(vector,(0,4,2))"}, [](const std::string& text) {
    const auto node = node_of_rank_zero(text, 4, 3);
    if (node) {
      EXPECT_LT(*node, 3U);
    }
  });
}

TEST(Fuzz, SwitchMap) {
  const std::vector<std::string> nodes = {"n1", "n2", "n3"};
  fuzz({"SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1,3]\nSwitchName=t Level=1 Switches=s[1-2]\n",
        "SwitchName=s2 Level=0 Nodes=n2\n"},
       [&](const std::string& text) {
         const auto map = make_switch_map(text);
         EXPECT_LE(map.size(), kMaxSwitchMap);
         if (!map.empty()) {
           EXPECT_EQ(order_by_switch(switch_paths(map, nodes)).size(), nodes.size());
         }
       });
  fuzz({"top.s1=n[1,3];top.s2=n2", "s1=n1"}, [&](const std::string& text) {
    EXPECT_EQ(order_by_switch(switch_paths(text, nodes)).front(), 0U);
  });
}

TEST(Fuzz, FilesOfTheHost) {
  fuzz({"node3\nnode[1-2]*2\n# comment\n", "n1,n2"},
       [](const std::string& text) { first_host_of_hostfile(text); });
  fuzz({"  sl  local_address rem_address   st\n   0: 00000000:F230 00000000:0000 0A "
        "00000000:00000000 "
        "00:00000000 00000000  1000        0 1 1\n"},
       [](const std::string& text) { find_port_holder(text, 62'000); });
  fuzz({"32768\t60999\n"}, [](const std::string& text) {
    EXPECT_LE(count_ephemeral({61'000, 65'535}, text, "61000-61010"), 65'536U);
  });
}

}  // namespace
}  // namespace ddp::launch

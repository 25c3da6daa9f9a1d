// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/settings/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spank_plugin/launch/step/error.h"

namespace ddp::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string message_of(const std::string& spec) {
  try {
    parse_spec(spec, "--ddp");
  } catch (const LaunchError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Spec, ReadsWordsAndPairs) {
  const Spec spec = parse_spec("rank,master_addr=node7,master_port=29500,verbose=no", "--ddp");
  EXPECT_EQ(spec.mode, Mode::rank);
  EXPECT_EQ(spec.master_addr, "node7");
  EXPECT_EQ(spec.master_port, 29500);
  EXPECT_EQ(spec.verbose, false);
  EXPECT_EQ(spec.explain, std::nullopt);
  EXPECT_EQ(parse_spec("auto", "--ddp").mode, Mode::automatic);
  EXPECT_EQ(parse_spec("off", "--ddp").mode, Mode::off);
  EXPECT_EQ(parse_spec("verbose", "--ddp").verbose, true);
  EXPECT_EQ(parse_spec("", "--ddp").mode, std::nullopt);
  EXPECT_EQ(parse_spec("master_addr=fe80::1%eth0", "--ddp").master_addr, "fe80::1%eth0");
}

TEST(Spec, ErrorNamesTheUnknownItemAndListsTheAllowedOnes) {
  EXPECT_THAT(message_of("bogus"), AllOf(StartsWith("--ddp: unknown item 'bogus'"),
                                         HasSubstr("auto, rank, torchrun, off, explain"),
                                         HasSubstr("master_port=PORT")));
  EXPECT_THAT(message_of("color=red"),
              AllOf(HasSubstr("unknown key 'color'"), HasSubstr("master_addr=HOST")));
}

TEST(Spec, ReadsEveryValueInItsTable) {
  for (const auto& word : spec_words()) EXPECT_EQ(message_of(std::string(word.name)), "accepted");
  for (const auto& key : spec_keys()) {
    std::string values(key.values);
    for (std::size_t at = 0; at != std::string::npos;) {
      const auto end = values.find('|', at);
      std::string value = values.substr(at, end - at);
      if (value == "N" || value == "PORT") value = "7";
      if (value == "MIN:MAX") value = "2:4";
      if (value == "HOST:PORT") value = "node1:7";
      if (value == "DURATION") value = "90s";
      EXPECT_EQ(message_of(std::string(key.name) + "=" + value), "accepted");
      at = end == std::string::npos ? end : end + 1;
    }
    EXPECT_THAT(message_of(std::string(key.name) + "=$"), HasSubstr(std::string(key.name)));
  }
}

TEST(Spec, ValuesRoundTripAsWords) {
  const Spec spec = parse_spec(
      "torchrun,explain=json,order=switch,rdzv=c10d,threads=12,gpus=shared,local_rank=device,"
      "tf_config,watch,watch_stall=2min,fabric=efa,ucx=bind,nnodes=002:4,restarts=3,store=[fd00::1]"
      ":29400",
      "--ddp");
  EXPECT_EQ(word_for(*spec.mode), "torchrun");
  EXPECT_EQ(word_for(*spec.explain), "json");
  EXPECT_EQ(word_for(*spec.order), "switch");
  EXPECT_EQ(word_for(*spec.rendezvous), "c10d");
  EXPECT_EQ(word_for(*spec.threads), "12");
  EXPECT_EQ(word_for(*spec.gpus), "shared");
  EXPECT_EQ(word_for(*spec.local_rank), "device");
  EXPECT_EQ(word_for(*spec.tf_config), "yes");
  EXPECT_EQ(word_for(*spec.watch), "on");
  EXPECT_EQ(*spec.watch_stall, 120U);
  EXPECT_EQ(*spec.fabric, "efa");
  EXPECT_EQ(word_for(*spec.ucx), "bind");
  EXPECT_EQ(*spec.agents, "2:4");
  EXPECT_EQ(*spec.restarts, 3U);
  EXPECT_EQ(*spec.store, "[fd00::1]:29400");
}

class SpecRefuses : public testing::TestWithParam<std::string> {};

TEST_P(SpecRefuses, Text) {
  EXPECT_THAT(message_of(GetParam()), StartsWith("--ddp: ")) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(
    Malformed, SpecRefuses,
    testing::Values(",", "auto,", "auto,,verbose", "AUTO", " auto", "auto rank", "=", "=x",
                    "master_port=", "master_port=0", "master_port=65536", "master_port=12a",
                    "master_port=-1", "master_addr=", "master_addr=a b", "master_addr=$(reboot)",
                    "master_addr=" + std::string(256, 'a'), "verbose=1", "verbose=", "order=random",
                    "order=", "threads=0", "threads=-1", "threads=65537", "explain=xml",
                    "explain,explain=json", "rdzv=etcd", "fabric=", "fabric=a b", "ucx=all",
                    "gpus=0", "nnodes=", "nnodes=0", "nnodes=0:2", "nnodes=3:2",
                    "nnodes=2:", "nnodes=:2", "nnodes=1:2:3", "nnodes=65537", "nnodes=-1",
                    "nnodes=1,nnodes=1", "watch=", "watch=yes", "watch,watch=end",
                    "restarts=", "restarts=-1", "restarts=x", "restarts=1000001",
                    "watch_stall=", "watch_stall=60", "watch_stall=0.5s", "store=", "store=node1",
                    "store=node1:", "store=node1:0", "store=:1", "store=a b:1", "store=fd00::1:5",
                    "store=[node1]:5", "store=$(reboot):1", "rdzv=static,nnodes=1:2",
                    "rdzv=static,store=node1:7", "auto,off", "torchrun,rank", "auto,auto",
                    "off,explain", "master_port=1,master_port=1", std::string(5000, 'a')));

TEST(Settings, AreOffUnlessRequested) {
  Settings settings;
  EXPECT_EQ(settings.mode.value, Mode::off);
  apply(settings, parse_spec("verbose,master_port=5", "SLURM_DDP"), Origin::environment);
  EXPECT_EQ(settings.mode.value, Mode::off)
      << "a single setting in the environment is not a request";
  apply(settings, parse_spec("", "--ddp"), Origin::command_line);
  EXPECT_EQ(settings.mode.value, Mode::automatic) << "a bare --ddp is a request";
  EXPECT_TRUE(settings.verbose);
}

TEST(Settings, LaterLayersWinItemByItem) {
  Settings settings;
  const std::vector<std::string_view> site = {"default=auto", "master_addr=from-site",
                                              "port_base=50000", "port_count=100"};
  EXPECT_THAT(apply_site_arguments(settings, site), ElementsAre());
  apply(settings, parse_spec("master_port=1111,master_addr=from-user", "SLURM_DDP"),
        Origin::environment);
  apply(settings, parse_spec("master_port=2222", "--ddp"), Origin::command_line);
  EXPECT_EQ(settings.mode, (Chosen<Mode>{Mode::automatic, Origin::command_line}));
  EXPECT_EQ(settings.master_addr, (Chosen<std::string>{"from-user", Origin::environment}));
  EXPECT_EQ(settings.master_port, (Chosen<std::uint16_t>{2222, Origin::command_line}));
  EXPECT_EQ(settings.computed_ports, (Chosen<PortRange>{{50000, 50099}, Origin::site}));
}

TEST(Settings, OffOnTheCommandLineTurnsEverythingOff) {
  Settings settings;
  apply(settings, parse_spec("explain", "SLURM_DDP"), Origin::environment);
  EXPECT_EQ(settings.mode.value, Mode::automatic);
  apply(settings, parse_spec("off", "--ddp"), Origin::command_line);
  EXPECT_EQ(settings.mode.value, Mode::off);
  EXPECT_EQ(settings.explain, std::nullopt);
}

TEST(Settings, OptionWithoutAModeKeepsTheSitesMode) {
  Settings settings;
  const std::vector<std::string_view> site = {"default=torchrun"};
  EXPECT_THAT(apply_site_arguments(settings, site), ElementsAre());
  apply(settings, parse_spec("verbose", "--ddp"), Origin::command_line);
  EXPECT_EQ(settings.mode, (Chosen<Mode>{Mode::torchrun, Origin::command_line}));
}

TEST(Settings, RecordWhetherTheUserRequestedAPlan) {
  Settings settings;
  const std::vector<std::string_view> site = {"default=auto"};
  apply_site_arguments(settings, site);
  EXPECT_TRUE(settings.is_on());
  EXPECT_FALSE(settings.is_requested());
  Settings by_environment = settings;
  apply(by_environment, parse_spec("auto", "SLURM_DDP"), Origin::environment);
  EXPECT_TRUE(by_environment.is_requested());
  apply(settings, parse_spec("", "--ddp"), Origin::command_line);
  EXPECT_TRUE(settings.is_requested());
  apply(settings, parse_spec("off", "--ddp"), Origin::command_line);
  EXPECT_FALSE(settings.is_requested());
}

TEST(SiteArguments, WrongArgumentIsReportedAndIgnored) {
  const struct {
    std::vector<std::string_view> arguments;
    const char* message;
  } kCases[] = {{{"defualt=auto"}, "allowed are"},
                {{"default=packed"}, "unknown item 'packed'"},
                {{"default=verbose"}, "auto, rank, torchrun or off"},
                {{"default=auto,verbose"}, "auto, rank, torchrun or off"},
                {{"threads=4,verbose=yes"}, "separated by spaces"},
                {{"master_port=29500"}, "allowed are"},
                {{"order=random"}, "slurm, packed, switch"},
                {{"port_base=80"}, "1024 to 65535"},
                {{"port_base=x"}, "1024 to 65535"},
                {{"port_count=0"}, "1 to 64512"},
                {{"port_base=65000", "port_count=1000"}, "beyond port 65535"},
                {{"master_addr=a b"}, "not a host name"},
                {{"addr_suffix=;reboot"}, "not part of a host name"},
                {{"addr_suffix=%eth0"}, "not part of a host name"},
                {{"verbose=maybe"}, "not one of yes, no"},
                {{""}, "allowed are"}};
  for (const auto& [arguments, message] : kCases) {
    Settings settings;
    EXPECT_THAT(apply_site_arguments(settings, arguments),
                ElementsAre(AllOf(StartsWith("plugstack.conf: "), HasSubstr(message))));
    EXPECT_EQ(settings, Settings{}) << arguments.front();
  }
}

TEST(SiteArguments, WrongArgumentDoesNotAffectOthers) {
  Settings settings;
  const std::vector<std::string_view> arguments = {"default=auto", "nonsense=1", "verbose=yes"};
  EXPECT_EQ(apply_site_arguments(settings, arguments).size(), 1U);
  EXPECT_EQ(settings.mode.value, Mode::automatic);
  EXPECT_TRUE(settings.verbose);
}

TEST(SiteArguments, PortBaseAloneExtendsToTheLastPort) {
  Settings settings;
  const std::vector<std::string_view> arguments = {"port_base=62000"};
  apply_site_arguments(settings, arguments);
  EXPECT_EQ(settings.computed_ports.value, (PortRange{62000, 65535}));
}

TEST(EncodedSettings, RoundTrip) {
  Settings full;
  full.mode = {Mode::rank, Origin::environment};
  full.explain = ExplainFormat::json;
  full.verbose = true;
  full.master_addr = {"fe80::1%eth0", Origin::command_line};
  full.master_port = {29500, Origin::environment};
  full.computed_ports = {{50000, 50099}, Origin::site};
  full.addr_suffix = {"", Origin::command_line};  // cancels the site's suffix
  full.order = {Order::by_switch, Origin::command_line};
  full.threads = {{ThreadPolicy::Kind::count, 12}, Origin::site};
  full.gpus = {GpuPolicy::shared, Origin::site};
  full.local_rank = {LocalRankMeaning::device, Origin::environment};
  full.rendezvous = {Rendezvous::c10d, Origin::command_line};
  full.tf_config = {true, Origin::command_line};
  full.fabric = {"efa", Origin::environment};
  full.ucx = {UcxPolicy::bind, Origin::command_line};
  full.watch = {Watch::report, Origin::site};
  full.watch_stall = Chosen<std::uint32_t>{90, Origin::command_line};
  for (const Settings& settings : {Settings{}, full}) {
    const std::string text = encode_settings(settings);
    EXPECT_EQ(decode_settings(text), settings) << text;
  }
}

TEST(Settings, HowLongAStallMayLastDependsOnWhatFollows) {
  const auto limit = [](std::string_view spec) {
    Settings settings;
    apply(settings, parse_spec(spec, "--ddp"), Origin::command_line);
    return settings.stall_limit();
  };
  EXPECT_EQ(limit("watch"), std::chrono::minutes(1));
  EXPECT_EQ(limit("watch=report"), std::chrono::minutes(1));
  EXPECT_EQ(limit("watch=end"), std::chrono::minutes(10));
  EXPECT_EQ(limit("watch=end,watch_stall=90s"), std::chrono::seconds(90));
}

TEST(EncodedSettings, OtherTextIsRejected) {
  for (const std::string text :
       {"", "x", "rank", "2/rank  verbose", "2/torch", "1/master_port=0", "1/master_port=70000",
        "9/master_port=1", "master_port=1", "1/master_addr=a;b", "1/ports=1-2,3-4",
        "1/ports=", "1/color=red", "1/=x", "x/rank", "1rank", "1/"}) {
    EXPECT_THROW(decode_settings(text), LaunchError) << text;
  }
  EXPECT_THROW(decode_settings(std::string(10'000, 'a')), LaunchError);
}

}  // namespace
}  // namespace ddp::launch

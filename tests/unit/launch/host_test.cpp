// SPDX-License-Identifier: Apache-2.0
// Queries of the host: name service, ports, files. The tests use real sockets and files, but no
// network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "fake_environment.h"
#include "spank_plugin/launch/host/cpu_mask.h"
#include "spank_plugin/launch/host/fabric_facts.h"
#include "spank_plugin/launch/host/gpu_devices.h"
#include "spank_plugin/launch/host/name_lookup.h"
#include "spank_plugin/launch/host/node_facts.h"
#include "spank_plugin/launch/host/port_probe.h"
#include "spank_plugin/launch/step/ephemeral_ports.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/socket_table.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::launch {
namespace {

using namespace std::chrono_literals;

TEST(NameLookupTest, ClassifiesAddresses) {
  EXPECT_EQ(look_up_name("127.0.1.1", 60s).lookup, NameLookup::only_local);
  for (const auto* const local : {"::1", "0.0.0.0", "::", "fe80::1"}) {
    EXPECT_EQ(look_up_name(local, 60s).lookup, NameLookup::only_local) << local;
  }
  EXPECT_EQ(look_up_name("fe80::1%lo", 60s).lookup, NameLookup::usable) << "with its interface";
  EXPECT_EQ(look_up_name("192.0.2.7", 60s).lookup, NameLookup::usable);
  EXPECT_EQ(look_up_name("2001:db8::7", 60s).lookup, NameLookup::usable);
  EXPECT_EQ(look_up_name("256.256.256.256.", 60s).lookup, NameLookup::unknown_name);
}

TEST(NameLookupTest, EndsWhenTheNameServiceHangs) {
  const Resolver hanging = [](const std::string&) {
    std::this_thread::sleep_for(1h);
    return NameAnswer{NameLookup::usable, {}};
  };
  EXPECT_EQ(look_up_name("any", 50ms, hanging).lookup, NameLookup::timed_out);
}

TEST(NameLookupTest, SurvivesAResolverThatCrashesOrThrows) {
  const auto lookup = [](const Resolver& resolver) {
    return look_up_name("any", 60s, resolver).lookup;
  };
  EXPECT_EQ(lookup([](const std::string&) -> NameAnswer { _exit(3); }), NameLookup::not_done);
  EXPECT_EQ(lookup([](const std::string&) -> NameAnswer { throw std::runtime_error("x"); }),
            NameLookup::no_answer);
}

TEST(NameLookupTest, ReturnsAddressesThatOtherNodesCanUse) {
  EXPECT_EQ(look_up_name("192.0.2.7", 60s).addresses, std::vector<std::string>{"192.0.2.7"});
  EXPECT_EQ(look_up_name("2001:db8::7", 60s).addresses, std::vector<std::string>{"2001:db8::7"});
  EXPECT_TRUE(look_up_name("127.0.1.1", 60s).addresses.empty());
  const Resolver many = [](const std::string&) {
    return NameAnswer{NameLookup::usable, std::vector<std::string>(10'000, "192.0.2.7")};
  };
  EXPECT_EQ(look_up_name("any", 60s, many).addresses.size(), 10'000U) << "more than a pipe holds";
}

TEST(NameLookupTest, LeavesNoChildBehind) {
  look_up_name("127.0.0.1", 60s);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child process is left";
}

// A listening socket on a port that the kernel chooses. An IPv6 socket does not accept IPv4.
class Listener {
 public:
  explicit Listener(int family) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    if (family == AF_INET6) setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (bind(fd_, raw, length) != 0 || listen(fd_, 1) != 0 || getsockname(fd_, raw, &length) != 0) {
      throw std::runtime_error("no listening socket");
    }
    port_ = ntohs(
        reinterpret_cast<const sockaddr_in*>(&address)->sin_port);  // same position in sockaddr_in6
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::uint16_t port() const { return port_; }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

TEST(PortProbe, DetectsListenersOfBothFamilies) {
  std::uint16_t port = 0;
  // IPv4 comes last, because another process may use a port for IPv4 that is free for IPv6.
  for (const int family : {AF_INET6, AF_INET}) {
    const Listener listener(family);
    port = listener.port();
    EXPECT_FALSE(is_port_free(port)) << "family " << family;
  }
  EXPECT_TRUE(is_port_free(port)) << "free again";
}

TEST(PortProbe, ChoosesTheNextFreePort) {
  const Listener first(AF_INET);
  const Listener second(AF_INET);
  std::uint16_t free = 0;
  { free = Listener(AF_INET).port(); }
  const std::array ports{first.port(), second.port(), free};
  EXPECT_EQ(first_free_port(ports), free);
  EXPECT_EQ(first_free_port(std::span(ports).first(2)), std::nullopt) << "none is free";
}

TEST(PortProbe, NamesTheHolder) {
  const Listener listener(AF_INET);
  EXPECT_EQ(describe_taken_port(listener.port()),
            "port " + std::to_string(listener.port()) + " is taken on this host (user " +
                std::to_string(geteuid()) + " listens on it)");
}

constexpr const char* kTcp =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n"
    "   0: 0100007F:59D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 "
    "5012 1 0\n"
    "   1: 0501A8C0:EE48 0801A8C0:0016 01 00000000:00000000 02:000A7D8C 00000000     0        0 "
    "5013 2 0\n"
    "   2: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A "
    "00000000:00000000 00:00000000 00000000    33        0 5014 1 0\n"
    "   3: 0100007F:1F91 00";

TEST(SocketTable, FindsTheHolderOfAPort) {
  ASSERT_TRUE(find_port_holder(kTcp, 23000));
  EXPECT_EQ(find_port_holder(kTcp, 23000)->user, 1000U);
  EXPECT_TRUE(find_port_holder(kTcp, 23000)->listens);
  EXPECT_FALSE(find_port_holder(kTcp, 61000)->listens);
  EXPECT_EQ(find_port_holder(kTcp, 8080)->user, 33U);
  EXPECT_EQ(find_port_holder(kTcp, 22), std::nullopt) << "a remote port is not a local one";
  EXPECT_EQ(find_port_holder(kTcp, 0x1F91), std::nullopt) << "a truncated line";
  EXPECT_EQ(find_port_holder("", 22), std::nullopt);
  EXPECT_EQ(find_port_holder("a b c d e f g h i j", 22), std::nullopt);
}

TEST(EphemeralPorts, CountsTheOverlap) {
  EXPECT_EQ(count_ephemeral({61000, 65535}, "32768\t60999\n", "\n"), 0U);
  EXPECT_EQ(count_ephemeral({60990, 61005}, "32768\t60999\n", ""), 10U);
  EXPECT_EQ(count_ephemeral({61000, 65535}, "1024 65535", ""), 4536U);
  EXPECT_EQ(count_ephemeral({61000, 65535}, "1024 65535", "61000-65535\n"), 0U);
  EXPECT_EQ(count_ephemeral({61000, 61009}, "1024 65535", "61000-61003,61009"), 5U);
  EXPECT_EQ(count_ephemeral({61000, 61009}, "nonsense", ""), 0U);
  EXPECT_THROW(count_ephemeral({61000, 61009}, "1024 65535", "x"), LaunchError);
}

StepFacts two_nodes() {
  StepFacts step;
  step.launcher = Launcher::slurm;
  step.node_count = 2;
  step.task_count = 2;
  step.nodes = {"127.0.0.1", "192.0.2.8"};
  return step;
}

Inherited nothing() {
  return {[](const std::string&) { return std::nullopt; }, "1.0"};
}

NodeFacts node_facts(const Settings& settings) {
  return gather_node_facts(two_nodes(), settings, nothing(), false);
}

TEST(NodeFactsTest, GivenAddressIsResolvedForTheFabricOnly) {
  const NodeFacts given = node_facts(asked("master_addr=192.0.2.7"));
  EXPECT_EQ(given.leader_lookup, NameLookup::not_done) << "it is used unchanged";
  EXPECT_EQ(given.leader_addresses, std::vector<std::string>{"192.0.2.7"});
  EXPECT_TRUE(node_facts(asked("master_addr=192.0.2.7,fabric=off")).leader_addresses.empty());
}

TEST(NodeFactsTest, LoopbackLeaderUsesTheAddressOfAnotherNode) {
  const NodeFacts facts = node_facts(asked("auto"));
  EXPECT_EQ(facts.leader_lookup, NameLookup::only_local);
  EXPECT_EQ(facts.peer_addresses, std::vector<std::string>{"192.0.2.8"});
}

// "127" and "192" are the host names here, because numbers do not need a name service.
TEST(NodeFactsTest, UnresolvableSiteSuffixIsLeftOut) {
  StepFacts step = two_nodes();
  step.nodes = {"127", "192"};
  Settings settings;
  const std::vector<std::string_view> arguments = {"addr_suffix=.0.0.1"};
  apply_site_arguments(settings, arguments);
  const NodeFacts facts = gather_node_facts(step, settings, nothing(), false);
  EXPECT_TRUE(facts.lacks_suffix);
  EXPECT_EQ(facts.leader_lookup, NameLookup::usable) << "0.0.0.127";
  apply(settings, parse_spec("addr_suffix=.0.0.1", "--ddp"), Origin::command_line);
  const NodeFacts requested = gather_node_facts(step, settings, nothing(), false);
  EXPECT_FALSE(requested.lacks_suffix);
  EXPECT_EQ(requested.leader_lookup, NameLookup::only_local);
  EXPECT_EQ(requested.peer_addresses, std::vector<std::string>{"192.0.0.1"});
}

TEST(NodeFactsTest, SuffixSelectsTheOtherNetwork) {
  StepFacts step = two_nodes();
  step.nodes = {"192", "127"};
  const NodeFacts facts = gather_node_facts(step, asked("addr_suffix=.0.2.7"), nothing(), false);
  EXPECT_EQ(facts.leader_lookup, NameLookup::usable);
  EXPECT_EQ(facts.leader_addresses, std::vector<std::string>{"192.0.2.7"});
}

// The names are numbers, which need no name service; 256.256.256.256. is unknown everywhere.
TEST(NodeFactsTest, SlurmsAddressReplacesANameThatLeadsNowhere) {
  StepFacts step = two_nodes();
  step.nodes = {"256.256.256.256.", "192.0.2.8"};
  EXPECT_EQ(gather_node_facts(step, {}, nothing(), false).leader_lookup, NameLookup::unknown_name);
  step.node_addresses = "256.256.256.256.=192.0.2.7";
  NodeFacts facts = gather_node_facts(step, {}, nothing(), false);
  EXPECT_EQ(facts.slurms_address, "192.0.2.7");
  EXPECT_EQ(facts.leader_addresses, std::vector<std::string>{"192.0.2.7"});
  EXPECT_EQ(facts.why_slurms_address, "256.256.256.256. is unknown to the name service");
  step.node_addresses = "256.256.256.256.=127.0.0.1";
  EXPECT_EQ(gather_node_facts(step, {}, nothing(), false).slurms_address, std::nullopt);
  step.node_addresses = "256.256.256.256.=192.0.2.7";
  step.nodes.pop_back();
  step.node_count = 1;
  EXPECT_EQ(gather_node_facts(step, {}, nothing(), false).slurms_address, std::nullopt)
      << "127.0.0.1 is enough";
}

TEST(NodeFactsTest, SlurmsAddressDoesNotReplaceARightNameOrOneWithASuffix) {
  StepFacts step = two_nodes();
  step.nodes[0] = "192.0.2.7";
  step.node_addresses = "192.0.2.7=192.0.2.7";
  EXPECT_EQ(gather_node_facts(step, {}, nothing(), false).slurms_address, std::nullopt);
  step.nodes[0] = "256.256.256";
  step.node_addresses = "256.256.256=192.0.2.7";
  const NodeFacts facts = gather_node_facts(step, asked("addr_suffix=.256."), nothing(), false);
  EXPECT_EQ(facts.leader_lookup, NameLookup::unknown_name);
  EXPECT_EQ(facts.slurms_address, std::nullopt) << "the suffix is of another network";
}

TEST(NodeFactsTest, PlanInsideThePlanContinuesWithSlurmsAddresses) {
  StepFacts step = two_nodes();
  step.node_addresses = "p1=192.0.2.7";
  const auto slurms_address = [&step](const std::string& marked_for) {
    const Variables variables = {{"SLURM_DDP_SET", marked_for + ":MASTER_ADDR:"},
                                 {"MASTER_ADDR", "192.0.2.7"}};
    const Inherited inherited(lookup_in(variables), "1.0");
    return gather_node_facts(step, {}, inherited, false).slurms_address;
  };
  EXPECT_EQ(slurms_address("1.0"), "192.0.2.7");
  EXPECT_EQ(slurms_address("1.1"), std::nullopt) << "left over from another step";
}

// 192.0.2.7 is reserved for documentation, so no host has it.
TEST(NodeFactsTest, OnlyNodeIsNotWhereAWrongNameLeads) {
  StepFacts step = two_nodes();
  step.node_count = 1;
  step.nodes = {"192.0.2.7"};
  EXPECT_EQ(gather_node_facts(step, {}, nothing(), false).leader_lookup, NameLookup::elsewhere);
}

StepFacts one_node(std::uint16_t master, std::uint16_t second) {
  StepFacts step = two_nodes();
  step.node_count = 1;
  step.nodes.pop_back();
  step.tasks_per_node = TasksPerNode::parse("2");
  step.reserved_ports = std::to_string(master) + "," + std::to_string(second);
  return step;
}

TEST(NodeFactsTest, StepOfOneNodeUsesTwoDifferentFreePorts) {
  const Listener taken(AF_INET);
  std::uint16_t free = 0;
  { free = Listener(AF_INET).port(); }
  // One of the two ports is taken, so the other is MASTER_PORT, and none is left for JAX.
  const auto step = one_node(taken.port(), free);
  const NodeFacts facts = gather_node_facts(step, {}, nothing(), true);
  EXPECT_EQ(facts.free_port, free);
  EXPECT_EQ(facts.free_second_port, std::nullopt);
  EXPECT_EQ(gather_node_facts(step, {}, nothing(), false).free_port, std::nullopt);
  Settings computed;
  const auto base = static_cast<std::uint16_t>(taken.port() - 4);
  computed.computed_ports = {{base, static_cast<std::uint16_t>(base + 7)}, Origin::site};
  StepFacts without = step;
  without.reserved_ports.clear();  // of 8 ports, JAX's are the last four; the first is taken
  EXPECT_GT(gather_node_facts(without, computed, nothing(), true).free_second_port, taken.port());
}

// The plan of rank 0 on this host, in a step with two tasks on each of two nodes.
struct Checked {
  Facts facts;
  Settings settings;
  Plan plan;

  explicit Checked(const std::string& ports, const std::string& spec) : settings(asked(spec)) {
    facts.step = two_nodes();
    facts.step.task_count = 4;
    facts.step.tasks_per_node = TasksPerNode::parse("2(x2)");
    facts.step.reserved_ports = ports;
    facts.task.local_task_count = 2;
    facts.task.node_rank = 0;
    plan = make_plan(facts, settings, nothing());
  }
  void check() { check_planned_ports(plan, facts, settings, nothing()); }
  std::string error() {
    return error_of([&] { check(); });
  }
};

TEST(PlannedPorts, AreCheckedWhereTheyWillBeUsed) {
  const Listener taken(AF_INET);
  const std::string is_taken = "port " + std::to_string(taken.port()) + " is taken on this host";
  const std::string port = std::to_string(taken.port());
  EXPECT_TRUE(Checked(port + ",65535", "auto").error().starts_with(is_taken)) << "MASTER_PORT";
  EXPECT_EQ(Checked(port + ",65535", "master_port=" + port).error(), "")
      << "the user's responsibility";
  Checked jax("7," + port, "auto");
  EXPECT_EQ(jax.error(), "") << "most programs do not use it";
  EXPECT_THAT(jax.plan.notes, testing::Contains(testing::StartsWith(is_taken)));
  EXPECT_TRUE(Checked("7," + port + ",65535", "tf_config").error().starts_with(is_taken))
      << "requested";
  Checked other_rank("7," + port, "auto");
  other_rank.plan.rank = 1;
  const auto notes = other_rank.plan.notes.size();
  other_rank.check();
  EXPECT_EQ(other_rank.plan.notes.size(), notes) << "this rank will listen on neither";
}

TEST(FabricFacts, OffReadsNothingAndUnknownPresetIsAnError) {
  const EnvLookup nothing = [](const std::string&) { return std::nullopt; };
  const Inherited inherited(nothing, "1.0");
  Facts facts;
  facts.step = two_nodes();
  facts.node.leader_addresses = {"127.0.0.1"};
  EXPECT_TRUE(find_fabric_part(facts, asked("fabric=off"), nothing, inherited).summary.empty());
  EXPECT_FALSE(find_fabric_part(facts, asked("auto"), nothing, inherited).summary.empty());
  EXPECT_THROW(find_fabric_part(facts, asked("fabric=no-such"), nothing, inherited), LaunchError);
}

// The number of tasks on a node, and the GPUs that each sees.
Facts facts_of_gpus(std::uint32_t tasks, const std::string& visible, const std::string& numbers) {
  Facts facts;
  facts.step = two_nodes();
  facts.task.local_task_count = tasks;
  facts.task.gpus = {{"CUDA_VISIBLE_DEVICES", visible}};
  facts.task.gpu_numbers = numbers;
  return facts;
}

TEST(FabricRequest, NamesTheTasksGpuUnlessItMayStartRanks) {
  const auto gpu_of = [](const Facts& facts) {
    return fabric_request(facts, asked("rank,ucx=bind")).gpu;
  };
  EXPECT_EQ(gpu_of(facts_of_gpus(2, "0,1", "4,5")), "4");
  EXPECT_EQ(gpu_of(facts_of_gpus(1, "0", "5")), "5");
  EXPECT_EQ(gpu_of(facts_of_gpus(1, "0,1", "4,5")), std::nullopt)
      << "the workers of its torchrun would share one port";
  Facts masked = facts_of_gpus(2, "0,1", "4,5");
  masked.node.gpus = {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}};
  EXPECT_EQ(gpu_of(masked), std::nullopt) << "each of the tasks has two of four";
  EXPECT_TRUE(fabric_request(masked, asked("rank,ucx=bind")).bind_ucx);
  EXPECT_FALSE(fabric_request(masked, asked("rank")).bind_ucx);
}

// A directory that other users can access.
class Directory {
 public:
  Directory() { std::filesystem::permissions(path_, std::filesystem::perms(0755)); }

  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    test::write(std::filesystem::path(path_) / name, text);
  }

 private:
  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path().string();
};

TEST(CpuMask, CountsCoresBySiblings) {
  const auto real = read_cpu_mask();
  ASSERT_TRUE(real);
  EXPECT_GE(real->cpus, real->cores);
  EXPECT_GE(real->online, real->cpus);
  const Directory directory;  // all CPUs belong to one core
  for (const std::uint32_t cpu : real->numbers) {
    directory.write("cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", "0-1023\n");
  }
  EXPECT_EQ(read_cpu_mask(directory.path())->cores, 1U);
  EXPECT_EQ(read_cpu_mask("/nowhere")->cores, real->cpus)
      << "without a topology each CPU is a core";
}

// True if GPUs are hidden from an ordinary user. Asks in a child process that is not root, because
// root may open everything.
bool hides_from_user(const std::string& directory) {
  const pid_t child = fork();
  if (child == 0) {
    const bool is_user = geteuid() != 0 || (setgid(65'534) == 0 && setuid(65'534) == 0);
    _exit(!is_user ? 2 : hides_gpu_devices(directory, directory + "/drm") ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_LE(WEXITSTATUS(status), 1);
  return WEXITSTATUS(status) == 1;
}

TEST(GpuDevices, AreHiddenIfOneIsInaccessible) {
  const Directory directory;
  EXPECT_FALSE(hides_from_user(directory.path())) << "there are no GPUs";
  directory.write("nvidia0", "");
  directory.write("nvidia3", "");
  std::filesystem::permissions(directory.path() + "/nvidia0", std::filesystem::perms(0666));
  std::filesystem::permissions(directory.path() + "/nvidia3", std::filesystem::perms(0666));
  EXPECT_FALSE(hides_from_user(directory.path()));
  std::filesystem::permissions(directory.path() + "/nvidia3", std::filesystem::perms(0));
  EXPECT_TRUE(hides_from_user(directory.path()));
}

TEST(GpuDevices, AmdDevicesAreTheRenderNodesOfItsDriver) {
  const Directory directory;
  namespace fs = std::filesystem;
  const auto add = [&directory](const std::string& name, const std::string& driver, unsigned mode) {
    const fs::path device = fs::path(directory.path()) / "dri" / name;
    const fs::path sysfs = fs::path(directory.path()) / "drm" / name / "device";
    fs::create_directories(device.parent_path());
    fs::create_directories(sysfs);
    std::ofstream(device) << "";
    fs::permissions(device, fs::perms(mode));
    fs::create_symlink("/sys/bus/pci/drivers/" + driver, sysfs / "driver");
  };
  add("renderD128", "nvidia", 0);  // accessible to the group "render" only, as usual
  add("renderD129", "amdgpu", 0666);
  EXPECT_FALSE(hides_from_user(directory.path()));
  add("renderD130", "amdgpu", 0);
  EXPECT_TRUE(hides_from_user(directory.path()));
}

}  // namespace
}  // namespace ddp::launch

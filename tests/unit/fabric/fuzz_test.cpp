// SPDX-License-Identifier: Apache-2.0
// Damaged files and trees: nothing crashes, nothing hangs, and the results are bounded and
// printable on one line. DDP_FUZZ_CASES and DDP_FUZZ_SEED change the number of cases and the seed.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "spank_plugin/fabric/files/text.h"
#include "spank_plugin/fabric/plan/plan.h"
#include "tests/unit/fabric/machine.h"
#include "tests/unit/fabric/mutator.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

namespace fs = std::filesystem;
using test::Mutator;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::uint64_t cases() {
  return number_from_environment("DDP_FUZZ_CASES", 2'000);
}
std::uint64_t seed() {
  return number_from_environment("DDP_FUZZ_SEED", 20'240'607);
}

bool is_one_line(const std::string& text) {
  return text.size() < 65'536 && text.find_first_of("\n\r\x1b") == std::string::npos;
}

// One instance of each kind of file that the readers read.
constexpr std::string_view kSmallNode = R"(
  sys/class/net/lo/type = 772
  sys/class/net/lo/flags = 0x9
  sys/class/net/lo/operstate = unknown
  sys/class/net/lo/carrier = 1
  sys/class/net/eth0/type = 1
  sys/class/net/eth0/flags = 0x1003
  sys/class/net/eth0/operstate = up
  sys/class/net/eth0/ifindex = 2
  sys/class/net/eth0/speed = 25000
  sys/class/net/eth0/uevent = DEVTYPE=vlan\nINTERFACE=eth0
  sys/class/net/eth0/device/numa_node = 0
  sys/class/net/docker0/type = 1
  sys/class/net/docker0/flags = 0x1003
  sys/class/net/docker0/operstate = up
  sys/class/net/docker0/bridge/
  sys/class/infiniband/mlx5_0/device -> ../../../devices/pci0000:15/0000:15:01.0/0000:18:00.0
  sys/class/infiniband/mlx5_0/ports/1/link_layer = InfiniBand
  sys/class/infiniband/mlx5_0/ports/1/state = 4: ACTIVE
  sys/class/infiniband/mlx5_0/ports/1/rate = 400 Gb/sec (4X NDR)
  sys/class/infiniband/mlx5_0/ports/1/lid = 0x1a
  sys/class/infiniband/mlx5_1/device -> ../../../devices/pci0000:26/0000:26:01.0/0000:29:00.0
  sys/class/infiniband/mlx5_1/ports/1/link_layer = Ethernet
  sys/class/infiniband/mlx5_1/ports/1/state = 4: ACTIVE
  sys/class/infiniband/mlx5_1/ports/1/rate = 100 Gb/sec (4X EDR)
  sys/class/infiniband/mlx5_1/ports/1/gids/3 = 0000:0000:0000:0000:0000:ffff:0a00:0001
  sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/3 = RoCE v2
  sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/3 = eth0
  sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0/numa_node = 0
  sys/devices/pci0000:15/0000:15:01.0/0000:17:00.0/class = 0x030200
  sys/bus/pci/devices/0000:18:00.0 -> ../../../devices/pci0000:15/0000:15:01.0/0000:18:00.0
  sys/bus/pci/devices/0000:17:00.0 -> ../../../devices/pci0000:15/0000:15:01.0/0000:17:00.0
  sys/bus/pci/drivers/nvidia/0000:17:00.0/
  proc/driver/nvidia/gpus/0000:17:00.0/information = GPU UUID:  GPU-1234-5678
  etc/nccl.conf = NCCL_DEBUG=WARN\nNCCL_IB_HCA==mlx5_0:1
  home/.nccl.conf = NCCL_SOCKET_IFNAME=^docker,lo
  etc/openmpi/openmpi-mca-params.conf = btl_tcp_if_exclude = lo
  etc/slurm-ddp/fabric.conf = preset = a\nnccl_version = 2.18\n[preset a]\nNCCL_IB_TC = 106
  address lo 127.0.0.1/8
  address eth0 10.0.0.1/24
  address docker0 172.17.0.1/16
  route eth0 10.0.0.0/24
  route eth0 default
  route eth0 2001:db8::/64
)";

// A tree on disk whose entries are damaged one at a time and restored.
class DamagedTree {
 public:
  DamagedTree() : machine_(kSmallNode) {
    for (const auto& entry : fs::recursive_directory_iterator(machine_.root())) {
      if (entry.is_symlink()) links_[entry.path()] = fs::read_symlink(entry.path());
      if (!entry.is_symlink() && entry.is_regular_file()) files_.push_back(entry.path());
    }
    std::sort(files_.begin(), files_.end());
    for (const auto& [link, target] : links_) files_.push_back(link);
  }

  const test::Machine& machine() const { return machine_; }

  template <typename Use>
  void with_damage(Mutator& mutator, Use use) {
    const fs::path& path = files_[mutator.below(files_.size())];
    const bool is_link = links_.contains(path);
    const std::string before = is_link ? links_[path].string() : content_of(path);
    fs::remove(path);
    replace(mutator, path, before);
    use();
    fs::remove_all(path);
    is_link ? fs::create_symlink(before, path) : write(path, before);
  }

 private:
  static std::string content_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  static void write(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }

  static void replace(Mutator& mutator, const fs::path& path, const std::string& content) {
    switch (mutator.below(24)) {
      case 0:
        return;  // removed
      case 1:
        fs::create_directory(path);
        return;
      case 2:
        fs::create_symlink(path.filename(), path);  // a link to itself
        return;
      case 3:
        if (mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("mkfifo failed");
        return;
      case 4:
        write(path, std::string(100'000, 'x'));
        return;
      default:
        write(path, mutator.damaged(content));
    }
  }

  test::Machine machine_;
  std::map<fs::path, fs::path> links_;
  std::vector<fs::path> files_;
};

void expect_sound(const Plan& plan) {
  EXPECT_TRUE(is_one_line(plan.summary)) << plan.summary;
  EXPECT_LT(plan.settings.size(), 200U);
  EXPECT_LT(plan.warnings.size(), 100U);
  for (const auto& warning : plan.warnings) EXPECT_TRUE(is_one_line(warning)) << warning;
  for (const auto& note : plan.notes) EXPECT_TRUE(is_one_line(note)) << note;
  for (const auto& setting : plan.settings) {
    EXPECT_TRUE(is_variable_name(setting.name)) << setting.name;
    EXPECT_TRUE(is_one_line(setting.rule)) << setting.rule;
    EXPECT_TRUE(setting.kept || is_plain_value(setting.value)) << setting.value;
  }
}

TEST(Fuzz, TreesGiveAPlanOrAnError) {
  Mutator mutator(seed());
  DamagedTree tree;
  for (std::uint64_t i = 0; i < cases() / 4 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    tree.with_damage(mutator, [&] {
      Request request = test::two_nodes(i % 3 == 0 ? "10.0.0.9" : "172.17.0.5");
      request.bind_ucx = i % 2 == 0;
      request.gpu.emplace("0");
      expect_sound(make_plan(tree.machine().read(), request, {}));
    });
  }
}

TEST(Fuzz, EnvironmentsAndRequestsGiveAPlanOrAnError) {
  constexpr std::array<const char*, 9> kNames{
      "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA",      "NCCL_IB_GID_INDEX",
      "GLOO_SOCKET_IFNAME", "NCCL_DEBUG",       "UCX_TLS",
      "UCX_NET_DEVICES",    "TP_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include"};
  Mutator mutator(seed() + 1);
  const Node node = test::Machine(kSmallNode).read();
  for (std::uint64_t i = 0; i < cases() / 4 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    Request request = test::two_nodes(mutator.damaged("10.0.0.9"));
    request.source_address = mutator.damaged("2001:db8::1%eth0");
    request.gpu = mutator.damaged("GPU-1234-5678");
    request.preset = mutator.below(4) == 0 ? mutator.damaged("efa") : "a";
    request.bind_ucx = true;
    const auto environment = test::variables(
        {{kNames[mutator.below(kNames.size())], mutator.damaged("^=eth0,mlx5_1:1,docker")}});
    try {
      expect_sound(make_plan(node, request, environment));
    } catch (const FabricError& error) {
      EXPECT_TRUE(is_one_line(error.what())) << error.what();
    }
  }
}

TEST(Fuzz, SiteFilesAreReadOrRejectedInOneSentence) {
  constexpr std::string_view kFile =
      "# site\npreset = rack7\ninterface = bond0\nib_hca = mlx5_0:1,mlx5_1\nnccl_version = 2.18.1\n"
      "ucx = bind\n[preset rack7]\nNCCL_IB_TC = 106\nNCCL_NET = AWS Libfabric\n[preset b]\nUCX_X = "
      "1\n";
  Mutator mutator(seed() + 2);
  std::uint64_t refused = 0;
  for (std::uint64_t i = 0; i < cases() / 4 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    try {
      const SiteFile site = parse_site_file(mutator.damaged(std::string(kFile)), "f");
      for (const auto& preset : site.presets) {
        for (const auto& [name, value] : preset.values) EXPECT_TRUE(may_preset_set(name)) << name;
      }
    } catch (const FabricError& error) {
      ++refused;
      EXPECT_TRUE(is_one_line(error.what())) << error.what();
      EXPECT_LT(std::string(error.what()).size(), 4'096U);
    }
  }
  EXPECT_GT(refused, 0U);
}

TEST(Fuzz, ListsAndTablesAreReadWithinBounds) {
  constexpr std::string_view kV4 = "eth0\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
  constexpr std::string_view kV6 =
      "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 "
      "00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n";
  constexpr std::string_view kConf = "NCCL_IB_HCA==mlx5_0:1 # comment\n NCCL_DEBUG = WARN\n";
  Mutator mutator(seed() + 3);
  for (std::uint64_t i = 0; i < cases() / 4 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    const std::string text = mutator.damaged(std::string(i % 3 == 0   ? kV4
                                                         : i % 3 == 1 ? kV6
                                                                      : kConf));
    for (const auto& routes : {parse_ipv4_routes(text), parse_ipv6_routes(text)}) {
      for (const auto& route : routes) {
        EXPECT_TRUE(is_interface_name(route.interface)) << route.interface;
        EXPECT_TRUE(route.prefix_bits >= 0 && route.prefix_bits <= 128) << route.prefix_bits;
      }
      find_route(routes, IpAddress{});
    }
    for (const auto& assignment : parse_assignments(text, "f")) {
      EXPECT_TRUE(is_variable_name(assignment.name)) << assignment.name;
      EXPECT_TRUE(is_plain_value(assignment.value)) << assignment.value;
    }
    if (const auto address = parse_ip_address(text)) to_string(*address);
  }
}

}  // namespace
}  // namespace ddp::fabric

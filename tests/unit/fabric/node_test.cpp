// SPDX-License-Identifier: Apache-2.0
// Reading a whole node: missing values are absent, and invalid names are left out.
#include "spank_plugin/fabric/node/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include "spank_plugin/fabric/plan/plan.h"

#include "base/text_file.h"
#include "tests/unit/fabric/machine.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

TEST(Node, EmptyFileSystemGivesAnEmptyNode) {
  const test::Machine machine("empty/");
  const Node node = machine.read();
  EXPECT_TRUE(node.interfaces.empty() && node.ports.empty() && node.gpus.empty());
  EXPECT_TRUE(node.routes.empty() && node.nccl_files.empty() && node.problems.empty());
  EXPECT_EQ(node.site.path, "");
}

TEST(Node, ReadsAWholeDgx) {
  const test::Machine machine(test::machine_text("dgx_h100"));
  const Node node = machine.read();
  EXPECT_EQ(node.interfaces.size(), 11U);
  EXPECT_EQ(node.ports.size(), 12U);
  EXPECT_EQ(node.gpus.size(), 8U);
  EXPECT_EQ(node.routes.size(), 10U);
  ASSERT_EQ(node.port_paths.size(), 12U);
  EXPECT_EQ(node.ports[0].driver, "mlx5_core");
  EXPECT_EQ(node.port_paths[0].back(), "0000:18:00.0");
  EXPECT_EQ(node.gpus[4].numa_node, 1);
  EXPECT_EQ(node.gpus[4].uuid, "GPU-h100-0000-0004");
}

TEST(Node, DetectsWhetherVerbsCanBeUsed) {
  const std::string port = "sys/class/infiniband/mlx5_0/ports/1/state = 4: ACTIVE\n";
  EXPECT_TRUE(test::Machine(port).read().can_use_verbs);
  EXPECT_FALSE(test::Machine(port + "dev/infiniband/rdma_cm = \n").read().can_use_verbs);
}

TEST(Node, UsesTheSiteFileReadBeforeTheContainer) {
  const test::Machine host(
      "etc/slurm-ddp/fabric.conf = preset = rack7\\n[preset rack7]\\nNCCL_IB_TC = 106");
  const test::Machine container("etc/hosts = ");
  const auto file = host.root() / "etc/slurm-ddp/fabric.conf";
  const bool is_root = geteuid() == 0;
  EXPECT_EQ(read_site(host.root(), SiteOwner::any).file.preset, "rack7");
  const Site site = read_site(host.root(), SiteOwner::root);
  EXPECT_EQ(site.file.preset.has_value(), is_root) << "the user who runs the test owns the file";
  std::filesystem::permissions(file, std::filesystem::perms(0666));
  EXPECT_THAT(read_site(host.root(), SiteOwner::root).problems,
              testing::ElementsAre(testing::HasSubstr("must belong to root")));
  const Node node =
      read_node({container.root(), "", ""}, {}, read_site(host.root(), SiteOwner::any));
  EXPECT_EQ(node.site.preset, "rack7");
  EXPECT_EQ(container.read().site.preset, std::nullopt);
  EXPECT_EQ(test::value_set(make_plan(node, {}, {}), "NCCL_IB_TC"), "106");
}

// Users can give interfaces any name in their own namespace.
TEST(Node, LeavesOutNamesThatLookLikeLists) {
  const test::Machine machine(
      "sys/class/net/eth0,eth1/type = 1\nsys/class/net/\x1b[31m/type = 1\n"
      "sys/class/net/^eth/type = 1\nsys/class/net/=eth/type = 1\nsys/class/net/eth0/type = 1\n"
      "sys/class/infiniband/mlx5_0,mlx5_1/ports/1/state = 4: ACTIVE\n"
      "sys/class/infiniband/a_name_of_more_than_15/ports/1/state = 4: ACTIVE\n");
  const Node node = machine.read();
  ASSERT_EQ(node.interfaces.size(), 1U);
  EXPECT_EQ(node.interfaces[0].name, "eth0");
  ASSERT_EQ(node.ports.size(), 1U);
  EXPECT_EQ(node.port_paths.size(), 1U);
}

// The only network of such a node must not be missing without a word.
TEST(Node, NamesRunningInterfacesThatNoListCanContain) {
  const test::Machine machine(
      "sys/class/net/a,b/type = 1\nsys/class/net/a,b/flags = 0x1003\n"
      "sys/class/net/a,b/operstate = up\n"
      "sys/class/net/b\xc3\xa4r/type = 1\nsys/class/net/b\xc3\xa4r/flags = 0x1003\n"
      "sys/class/net/b\xc3\xa4r/operstate = up\n");
  const Node node =
      read_node({machine.root(), {}, {}}, {{"a,b", *parse_ip_address("10.0.0.1"), 24}});
  EXPECT_TRUE(node.interfaces.empty());
  EXPECT_EQ(node.unlisted.size(), 2U);
  Request request;
  EXPECT_TRUE(make_plan(node, request, {}).warnings.empty());
  request.node_count = 2;
  EXPECT_THAT(
      make_plan(node, request, {}).node_warnings,
      testing::Contains("no variable can name the interface 'a,b', because lists such as "
                        "NCCL_SOCKET_IFNAME need printable ASCII without commas; rename it"));
}

TEST(TextFile, IsReadUpToItsBoundAndOnlyIfItIsAFile) {
  const test::FakeSysfs fake("file = 0123456789\ndirectory/");
  EXPECT_EQ(read_text(fake.root() / "file", 4), "0123");
  EXPECT_EQ(read_text(fake.root() / "file", 400), "0123456789\n");
  EXPECT_FALSE(read_text(fake.root() / "nothing", 4));
  EXPECT_FALSE(read_text(fake.root() / "directory", 4));
  ASSERT_EQ(mkfifo((fake.root() / "fifo").c_str(), 0600), 0);
  EXPECT_FALSE(read_text(fake.root() / "fifo", 4));
  EXPECT_FALSE(read_text("/dev/zero", 4));
}

}  // namespace
}  // namespace ddp::fabric

// SPDX-License-Identifier: Apache-2.0
// TCP connections of this process, and dumps as a kernel could send them.
#include "spank_plugin/watch/tcp_traffic.h"

#include <gtest/gtest.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/file_descriptor.h"

namespace ddp::watch {
namespace {

struct Connection {
  FileDescriptor one;
  FileDescriptor other;
};

Connection connect_to_itself() {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), any, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), any, &size), 0);
  FileDescriptor one(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(one.get(), any, size), 0);
  return {std::move(one), FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

std::optional<TcpTraffic> own_traffic() {
  Process self;
  self.pid = getpid();
  return read_tcp_traffic({&self, 1});
}

TEST(TcpTraffic, GrowsWithWhatIsSent) {
  Connection connection = connect_to_itself();
  const auto before = own_traffic();
  if (!before) GTEST_SKIP() << "the kernel does not tell about sockets";
  EXPECT_EQ(own_traffic(), before);
  std::string text(10'000, 'x');
  ASSERT_TRUE(write_all(connection.one.get(), text));
  ASSERT_EQ(recv(connection.other.get(), text.data(), text.size(), MSG_WAITALL), 10'000);
  const auto after = own_traffic();
  ASSERT_TRUE(after);
  EXPECT_GE(after->bytes, before->bytes + 10'000);
  EXPECT_EQ(after->sockets, before->sockets);
}

TEST(TcpTraffic, ChangesWithTheSetOfSockets) {
  Connection first = connect_to_itself();
  const auto before = own_traffic();
  if (!before) GTEST_SKIP() << "the kernel does not tell about sockets";
  const Connection second = connect_to_itself();
  const auto more = own_traffic();
  ASSERT_TRUE(more);
  EXPECT_NE(more->sockets, before->sockets);
  first.one.close();
  EXPECT_NE(own_traffic(), more);
}

TEST(TcpTraffic, IsThatOfTheGivenProcesses) {
  const Connection connection = connect_to_itself();
  EXPECT_EQ(read_tcp_traffic({}), TcpTraffic{});
}

template <typename Value>
std::string bytes_of(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string message(std::uint16_t type, const std::string& body) {
  nlmsghdr header{};
  header.nlmsg_type = type;
  header.nlmsg_len = static_cast<std::uint32_t>(sizeof header + body.size());
  return bytes_of(header) + body;
}

// The socket with this inode, 3 bytes acknowledged and 4 received; `info` bytes of them are told.
std::string socket_message(std::uint32_t inode, std::size_t info = sizeof(tcp_info)) {
  inet_diag_msg socket{};
  socket.idiag_inode = inode;
  tcp_info content{};
  content.tcpi_bytes_acked = 3;
  content.tcpi_bytes_received = 4;
  const rtattr other{sizeof(rtattr), INET_DIAG_MEMINFO};
  const rtattr start{static_cast<std::uint16_t>(sizeof(rtattr) + info), INET_DIAG_INFO};
  return message(SOCK_DIAG_BY_FAMILY, bytes_of(socket) + bytes_of(other) + bytes_of(start) +
                                          bytes_of(content).substr(0, info));
}

TEST(AddDump, CountsEachOfTheGivenSocketsOnce) {
  SocketInodes sockets{7, 8};
  TcpTraffic traffic;
  const std::string both = socket_message(7) + socket_message(9) + socket_message(7);
  EXPECT_EQ(add_dump(both, sockets, traffic), Dump::incomplete);
  EXPECT_EQ(add_dump(message(NLMSG_DONE, bytes_of(0)), sockets, traffic), Dump::complete);
  EXPECT_EQ(traffic.bytes, 7U);
  EXPECT_EQ(sockets, SocketInodes{8});
}

TEST(AddDump, TakesTheShorterFactsOfAnOldKernel) {
  SocketInodes sockets{7};
  TcpTraffic traffic;
  const std::size_t until_received = offsetof(tcp_info, tcpi_bytes_received);
  EXPECT_EQ(add_dump(socket_message(7, until_received), sockets, traffic), Dump::incomplete);
  EXPECT_EQ(traffic.bytes, 3U);
}

TEST(AddDump, KnowsARefusal) {
  SocketInodes sockets{7};
  TcpTraffic traffic;
  EXPECT_EQ(add_dump(message(NLMSG_ERROR, bytes_of(-ENOENT)), sockets, traffic), Dump::failed);
  EXPECT_EQ(add_dump(message(NLMSG_DONE, bytes_of(-ENOMEM)), sockets, traffic), Dump::failed);
}

TEST(AddDump, SurvivesEveryCutAndEveryChangedByte) {
  const std::string good = socket_message(7);
  for (std::size_t i = 1; i < good.size(); ++i) {
    SocketInodes sockets{7};
    TcpTraffic traffic;
    EXPECT_EQ(add_dump(good.substr(0, i), sockets, traffic), Dump::failed) << i;
    std::string changed = good;
    changed[i] = '\xff';
    add_dump(changed, sockets, traffic);  // a sanitizer would see a wrong access
    EXPECT_TRUE(traffic == TcpTraffic() || sockets.empty()) << i;
  }
}

}  // namespace
}  // namespace ddp::watch

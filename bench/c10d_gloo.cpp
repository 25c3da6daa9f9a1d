// SPDX-License-Identifier: Apache-2.0
#include "bench/c10d_gloo.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/host.h"

namespace ddp::bench {
namespace {

c10::intrusive_ptr<c10d::TCPStore> connect_store(comm::Group& group) {
  const std::string host = host_name();
  const auto leader = group.broadcast_text(host, 0);
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = group.rank() == 0;
  options.numWorkers = static_cast<std::size_t>(group.size());
  options.waitWorkers = false;
  c10::intrusive_ptr<c10d::TCPStore> store;
  if (options.isServer) store = c10::make_intrusive<c10d::TCPStore>("localhost", options);
  const auto port =
      group.all_reduce_value<std::int32_t>(store ? store->getPort() : 0, comm::ReduceOp::max);
  options.port = static_cast<std::uint16_t>(port);
  if (!store) store = c10::make_intrusive<c10d::TCPStore>(leader, options);
  return store;
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroupGloo> connect_gloo(comm::Group& group) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(connect_store(group), group.rank(),
                                                     group.size(), options);
}

}  // namespace ddp::bench

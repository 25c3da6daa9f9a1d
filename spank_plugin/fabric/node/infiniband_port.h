// SPDX-License-Identifier: Apache-2.0
// The ports of InfiniBand and RoCE devices in /sys/class/infiniband.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fabric {

// One used entry of a port's GID table (global addresses); all-zero entries are unused.
struct Gid {
  int index = 0;
  std::string address;     // "fe80:0000:0000:0000:506b:4b03:00c0:ffee"
  std::string type;        // "IB/RoCE v1" or "RoCE v2"; empty where the kernel hides it
  std::string net_device;  // RoCE: the interface of this GID; empty otherwise
};

struct InfinibandPort {
  std::string device;               // "mlx5_0"
  int port = 0;                     // from 1
  std::string link_layer;           // "InfiniBand", "Ethernet" (RoCE), "Unspecified" (EFA)
  std::string state;                // "ACTIVE", "ACTIVE_DEFER", "DOWN", "INIT", ..; may be empty
  std::string phys_state;           // "LinkUp", "Polling", "Disabled", ..; empty if unknown
  std::optional<double> rate_gbps;  // 400 for "400 Gb/sec (4X NDR)"
  std::string rate_text;            // the attribute as the kernel writes it
  std::optional<int> lid;           // 0 on InfiniBand if no subnet manager has configured the port
  std::optional<int> sm_lid;
  std::vector<Gid> gids;
  std::string bus_address;  // "0000:17:00.0"
  std::string driver;       // of the device: "mlx5_core", "bnxt_en", "efa"; empty if unknown
  std::optional<int> numa_node;
  std::string board;           // board_id
  std::string firmware;        // fw_ver
  std::string node_type = {};  // "CA" (InfiniBand, RoCE), "RNIC" (iWARP), "usNIC"; may be empty
  // SR-IOV: the bus address of the device that this is a virtual function of; empty if it is none,
  // or in a virtual machine.
  std::string physical_function = {};
  std::string carrier_interface = {};  // of RDMA in software (rxe): the interface that it uses

  // In ACTIVE_DEFER, the port recovers from an error of its link, and keeps its connections.
  bool active() const { return state == "ACTIVE" || state == "ACTIVE_DEFER"; }
};

// Reads all ports below `sys`, normally "/sys", ordered by device and port number: at most 256
// devices with 256 ports and 1024 GIDs each. A GID table is read up to the first 32 consecutive
// unused entries.
std::vector<InfinibandPort> read_infiniband_ports(const std::filesystem::path& sys);

// Returns the protocol of a port that NCCL cannot use, "iWARP" or "usNIC"; otherwise empty.
std::string_view foreign_protocol(const InfinibandPort& port) noexcept;

// Returns "mlx5_0:1", the format of NCCL_IB_HCA and of the InfiniBand tools.
std::string name_of(const InfinibandPort& port);

}  // namespace ddp::fabric

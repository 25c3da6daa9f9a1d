// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/site/presets.h"

#include <algorithm>
#include <array>

#include "spank_plugin/fabric/files/text.h"

namespace ddp::fabric {

std::vector<Preset> built_in_presets() {
  return {
      // EFA ports are not InfiniBand ports to NCCL: its plugin does the work, and only the
      // bootstrap sockets need settings. No FI_* is needed with libfabric of 2023 and later.
      {"efa",
       "aws-samples/awsome-distributed-training, 2024",
       {{"NCCL_SOCKET_IFNAME", "^docker,lo,veth"}}},
      // The nccl.conf of the images has most of these values, but a container does not see that
      // file. The topology file replaces a PCI tree that the hypervisor hides.
      {"azure-ndv4",
       "Azure/azhpc-images customizations/ndv4.sh and Azure's NCCL samples, 2024",
       {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
        {"NCCL_IB_PCI_RELAXED_ORDERING", "1"},
        {"NCCL_SOCKET_IFNAME", "=eth0"},
        {"NCCL_TOPO_FILE", "/opt/microsoft/ndv4/topo.xml"}}},
      {"azure-ndv5",
       "Azure/azhpc-images customizations/ndv5.sh and Azure's NCCL samples, 2024",
       {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
        {"NCCL_IB_PCI_RELAXED_ORDERING", "1"},
        {"NCCL_SOCKET_IFNAME", "=eth0"},
        {"NCCL_TOPO_FILE", "/opt/microsoft/ndv5/topo.xml"}}},
      // Traffic class 41 is the cluster network's lossless queue. The timeouts of public recipes
      // (22) are left out: they delay the detection of a dead node by minutes.
      {"oci-roce",
       "oracle-quickstart/oci-hpc samples/gpu, 2024",
       {{"NCCL_IB_TC", "41"}, {"NCCL_IB_SL", "0"}, {"NCCL_IB_GID_INDEX", "3"}}},
      // Uses libfabric's cxi provider and the aws-ofi-nccl plugin, which must be installed: with
      // NCCL_NET set, NCCL fails instead of falling back to TCP.
      {"slingshot",
       "eth-cscs/cscs-docs docs/software/communication, 2025",
       {{"NCCL_NET", "AWS Libfabric"},
        {"NCCL_NET_GDR_LEVEL", "PHB"},
        {"NCCL_CROSS_NIC", "1"},
        {"NCCL_PROTO", "^LL128"},
        {"NCCL_SOCKET_IFNAME", "hsn"},
        {"FI_CXI_DEFAULT_CQ_SIZE", "131072"},
        {"FI_CXI_DEFAULT_TX_SIZE", "32768"},
        {"FI_CXI_DISABLE_HOST_REGISTER", "1"},
        {"FI_CXI_RX_MATCH_MODE", "software"},
        {"FI_MR_CACHE_MONITOR", "userfaultfd"}}},
      // For A3 Ultra and A4. Google's own set_nccl_env.sh, if installed, is newer and also has the
      // machine type's tuner file.
      {"gib",
       "Google Cloud, set_nccl_env.sh of nccl-gib, 2025",
       {{"NCCL_NET", "gIB"},
        {"NCCL_CROSS_NIC", "0"},
        {"NCCL_NET_GDR_LEVEL", "PIX"},
        {"NCCL_P2P_NET_CHUNKSIZE", "131072"},
        {"NCCL_NVLS_CHUNKSIZE", "524288"},
        {"NCCL_IB_ADAPTIVE_ROUTING", "1"},
        {"NCCL_IB_QPS_PER_CONNECTION", "4"},
        {"NCCL_IB_TC", "52"},
        {"NCCL_IB_FIFO_TC", "84"}}},
  };
}

std::optional<Preset> find_preset(std::span<const Preset> own, std::string_view name) {
  const auto find_in = [name](std::span<const Preset> presets) -> std::optional<Preset> {
    const auto found = std::find_if(presets.begin(), presets.end(),
                                    [name](const auto& preset) { return preset.name == name; });
    return found == presets.end() ? std::nullopt : std::optional(*found);
  };
  auto found = find_in(own);
  return found ? found : find_in(built_in_presets());
}

std::string preset_names(std::span<const Preset> own) {
  std::string names;
  for (const auto& preset : own) names += preset.name + ", ";
  for (const auto& preset : built_in_presets()) names += preset.name + ", ";
  return names + "none";
}

bool may_preset_set(std::string_view variable) noexcept {
  constexpr std::array<std::string_view, 10> kPrefixes{
      "NCCL_", "RCCL_", "UCX_",        "FI_",    "OMPI_MCA_",
      "GLOO_", "TP_",   "TORCH_NCCL_", "MPICH_", "NVSHMEM_"};
  if (!is_variable_name(variable)) return false;
  return variable == "CUDA_DEVICE_ORDER" ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [variable](auto prefix) { return variable.starts_with(prefix); });
}

}  // namespace ddp::fabric

"""Small machines written by hand, one for every reader: invented addresses, real grammar."""

# ruff: noqa: E501  dumps are as wide as they are

# Two GPUs behind one gen 4 switch, a drive behind the same switch, a BMC display elsewhere. Tabs as lspci prints them.
LSPCI_VVV = """\
40:01.0 PCI bridge [0604]: Example Root Port [8086:352a] (rev 04) (prog-if 00 [Normal decode])
\tControl: I/O+ Mem+ BusMaster+
\tNUMA node: 1
\tIOMMU group: 7
\tBus: primary=40, secondary=41, subordinate=46, sec-latency=0
\tMemory behind bridge: a0000000-a0ffffff [size=16M]
\tPrefetchable memory behind bridge: 0000300000000000-00003fffffffffff [size=16T]
\tCapabilities: [40] Express (v2) Root Port (Slot-), MSI 00
\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0
\t\tDevCtl:\tCorrErr+ NonFatalErr- FatalErr+ UnsupReq-
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #1, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)
\tCapabilities: [220 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

41:00.0 PCI bridge [0604]: Example Switch [1000:c010] (prog-if 00 [Normal decode])
\tNUMA node: 1
\tBus: primary=41, secondary=42, subordinate=46, sec-latency=0
\tMemory behind bridge: a0000000-a0ffffff [size=16M]
\tPrefetchable memory behind bridge: 0000300000000000-00003fffffffffff [size=16T]
\tCapabilities: [68] Express (v2) Upstream Port, MSI 00
\t\tDevCtl:\tCorrErr+
\t\t\tMaxPayload 256 bytes, MaxReadReq 128 bytes
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)

42:00.0 PCI bridge [0604]: Example Switch [1000:c010] (prog-if 00 [Normal decode])
\tNUMA node: 1
\tBus: primary=42, secondary=43, subordinate=43, sec-latency=0
\tMemory behind bridge: fff00000-000fffff [disabled]
\tPrefetchable memory behind bridge: 0000300000000000-000037ffffffffff [size=8T]
\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
\t\tDevCtl:\tCorrErr+
\t\t\tMaxPayload 256 bytes, MaxReadReq 128 bytes
\t\tLnkCap:\tPort #4, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16 (ok)
\tCapabilities: [170 v1] Access Control Services
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

42:01.0 PCI bridge [0604]: Example Switch [1000:c010] (prog-if 00 [Normal decode])
\tNUMA node: 1
\tBus: primary=42, secondary=44, subordinate=44, sec-latency=0
\tPrefetchable memory behind bridge: 0000380000000000-00003bffffffffff [size=4T]
\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
\t\tDevCtl:\tCorrErr+
\t\t\tMaxPayload 256 bytes, MaxReadReq 128 bytes
\t\tLnkCap:\tPort #5, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)
\tCapabilities: [170 v1] Access Control Services
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

42:02.0 PCI bridge [0604]: Example Switch [1000:c010] (prog-if 00 [Normal decode])
\tNUMA node: 1
\tBus: primary=42, secondary=45, subordinate=45, sec-latency=0
\tMemory behind bridge: a0000000-a00fffff [size=1M]
\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
\t\tDevCtl:\tCorrErr+
\t\t\tMaxPayload 256 bytes, MaxReadReq 128 bytes
\t\tLnkCap:\tPort #6, Speed 16GT/s, Width x4, ASPM L1
\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x4 (ok)
\tCapabilities: [170 v1] Access Control Services
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

43:00.0 3D controller [0302]: NVIDIA Corporation GA100 [Example A100] [10de:20b2] (rev a1)
\tNUMA node: 1
\tIOMMU group: 9
\tRegion 0: Memory at 340000000000 (64-bit, prefetchable) [size=16M]
\tRegion 1: Memory at 300000000000 (64-bit, prefetchable) [size=128G]
\tCapabilities: [78] Express (v2) Endpoint, MSI 00
\t\tDevCap:\tMaxPayload 256 bytes, PhantFunc 0
\t\tDevCtl:\tCorrErr+
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16 (ok)
\tCapabilities: [bcc v1] Single Root I/O Virtualization (SR-IOV)
\t\tInitial VFs: 16, Total VFs: 16, Number of VFs: 2, Function Dependency Link: 00
\t\tRegion 0: Memory at 0000350000000000 (64-bit, prefetchable) [size=256K]

44:00.0 3D controller [0302]: NVIDIA Corporation GA100 [Example A100] [10de:20b2] (rev a1)
\tNUMA node: 1
\tRegion 1: Memory at 380000000000 (64-bit, prefetchable) [size=128G]
\tCapabilities: [78] Express (v2) Endpoint, MSI 00
\t\tDevCtl:\tCorrErr+
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)

45:00.0 Non-Volatile memory controller [0108]: Example Drive [144d:a824] (prog-if 02 [NVM Express])
\tNUMA node: 1
\tRegion 0: Memory at a0000000 (64-bit, non-prefetchable) [size=32K]
\tCapabilities: [70] Express (v2) Endpoint, MSI 00
\t\tDevCtl:\tCorrErr+
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #0, Speed 8GT/s, Width x4, ASPM L1
\t\tLnkSta:\tSpeed 8GT/s (ok), Width x4 (ok)

02:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. ASPEED Graphics Family [1a03:2000] (rev 52)
\tRegion 0: Memory at 92000000 (32-bit, non-prefetchable) [size=16M]
"""

LSPCI_TV = """\
-+-[0000:00]-+-00.0  Advanced Micro Devices, Inc. [AMD] Device 14a4
 |           +-01.1-[01]--+-00.0  NVIDIA Corporation AD102GL [Example GPU]
 |           |            \\-00.1  NVIDIA Corporation AD102 High Definition Audio Controller
 |           \\-05.1-[02]----00.0  Example NVMe SSD Controller
 \\-[0000:60]-+-00.0  Advanced Micro Devices, Inc. [AMD] Device 14a4
             +-01.1-[61-66]----00.0-[62-66]--+-00.0-[63]----00.0  Example NVMe SSD Controller
             |                               +-04.0-[64]----00.0  Mellanox Technologies MT2910 Family [ConnectX-7]
             |                               \\-08.0-[65-66]----00.0-[66]----00.0  Advanced Micro Devices, Inc. [AMD/ATI] Instinct
             \\-05.2-[67]--
"""

HWLOC = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" nodeset="0x00000003" gp_index="1">
    <info name="DMIProductName" value="Example Server"/>
    <object type="Package" os_index="0" cpuset="0x00000003" nodeset="0x00000001" gp_index="2">
      <info name="CPUModel" value="Example CPU"/>
      <object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x00000001" gp_index="3" local_memory="1073741824"/>
      <object type="Bridge" gp_index="4" bridge_type="0-1" depth="0" bridge_pci="0000:[10-14]">
        <object type="Bridge" gp_index="5" bridge_type="1-1" bridge_pci="0000:[11-14]" pci_busid="0000:10:00.0" \
pci_type="0604 [8086:2030] [0000:0000] 04 00" pci_link_speed="15.753846">
          <object type="Bridge" gp_index="6" bridge_type="1-1" bridge_pci="0000:[12-14]" pci_busid="0000:11:00.0" \
pci_type="0604 [10b5:9781] [10b5:9781] b0 00" pci_link_speed="15.753846">
            <object type="Bridge" gp_index="7" bridge_type="1-1" bridge_pci="0000:[13-13]" pci_busid="0000:12:00.0" \
pci_type="0604 [10b5:9781] [10b5:9781] b0 00" pci_link_speed="15.753846">
              <object type="PCIDev" gp_index="8" pci_busid="0000:13:00.0" pci_type="0302 [10de:1db8] [10de:131d] a1 00" \
pci_link_speed="15.753846">
                <object type="OSDev" gp_index="20" name="nvml1" osdev_type="12">
                  <info name="GPUModel" value="Example V100"/>
                </object>
              </object>
            </object>
            <object type="Bridge" gp_index="9" bridge_type="1-1" bridge_pci="0000:[14-14]" pci_busid="0000:12:01.0" \
pci_type="0604 [10b5:9781] [10b5:9781] b0 00" pci_link_speed="15.753846">
              <object type="PCIDev" gp_index="10" pci_busid="0000:14:00.0" pci_type="0302 [10de:1db8] [10de:131d] a1 00" \
pci_link_speed="15.753846">
                <object type="OSDev" gp_index="21" name="nvml0" osdev_type="12"/>
              </object>
            </object>
          </object>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c" nodeset="0x00000002" gp_index="12">
      <object type="NUMANode" os_index="1" cpuset="0x0000000c" nodeset="0x00000002" gp_index="13" local_memory="1073741824"/>
      <object type="Bridge" gp_index="14" bridge_type="0-1" depth="0" bridge_pci="0000:[20-21]">
        <object type="Bridge" gp_index="15" bridge_type="1-1" bridge_pci="0000:[21-21]" pci_busid="0000:20:00.0" \
pci_type="0604 [8086:2030] [0000:0000] 04 00" pci_link_speed="0.000000">
          <object type="PCIDev" gp_index="16" pci_busid="0000:21:00.0" pci_type="0207 [15b3:1019] [15b3:0008] 00 00" \
pci_link_speed="0.000000">
            <object type="OSDev" gp_index="22" name="mlx5_0" osdev_type="48"/>
          </object>
        </object>
      </object>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">0 1 </indexes>
    <u64values length="12">10 21 21 10 </u64values>
  </distances2>
</topology>
"""

HWLOC_1 = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology>
  <object type="Machine" os_index="0" cpuset="0x0000000f" nodeset="0x00000003">
    <distances nbobjs="2" relative_depth="2" latency_base="10.000000">
      <latency value="1.000000"/>
      <latency value="2.100000"/>
      <latency value="2.200000"/>
      <latency value="1.000000"/>
    </distances>
    <distances nbobjs="2" relative_depth="3" latency_base="1.000000">
      <latency value="1.000000"/>
      <latency value="8.000000"/>
      <latency value="8.000000"/>
      <latency value="1.000000"/>
    </distances>
    <object type="Group" cpuset="0x0000000f" nodeset="0x00000003" depth="0">
      <object type="NUMANode" os_index="1" cpuset="0x00000003" nodeset="0x00000002" local_memory="1073741824">
        <object type="Socket" os_index="0" cpuset="0x00000003" nodeset="0x00000002"/>
        <object type="Bridge" os_index="0" bridge_type="0-1" depth="0" bridge_pci="0000:[00-02]">
          <object type="Bridge" os_index="16" name="Example root port" bridge_type="1-1" depth="1" \
bridge_pci="0000:[02-02]" pci_busid="0000:00:01.0" pci_type="0604 [8086:2f02] [0000:0000] 02" pci_link_speed="15.753846">
            <object type="PCIDev" os_index="8192" name="Example K80" pci_busid="0000:02:00.0" \
pci_type="0302 [10de:102d] [10de:106c] a1" pci_link_speed="15.753846"/>
          </object>
        </object>
      </object>
      <object type="NUMANode" os_index="0" cpuset="0x0000000c" nodeset="0x00000001" local_memory="1073741824">
        <object type="Socket" os_index="1" cpuset="0x0000000c" nodeset="0x00000001"/>
      </object>
    </object>
  </object>
</topology>
"""

NCCL = """\
<!-- comments are allowed -->
<system version="1">
  <cpu numaid="0" affinity="00000000,0000ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:30:00.0" class="0x060400" vendor="0x1000" device="0xc010" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:32:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80" rank="1" gdr="1"><nvlink target="0000:50:00.0" count="12" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:33:00.0" class="0x020700" vendor="0x15b3" device="0x101b" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_3" dev="0" speed="200000" port="1" guid="0x1" gdr="1"/></nic>
      </pci>
    </pci>
    <pci busid="0000:40:00.0" class="0x060400" vendor="0x1000" device="0xc010" link_speed="8.0 GT/s PCIe" link_width="16">
      <pci busid="0000:42:00.0" class="0x120000" vendor="0x1002" device="0x74a1" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"/>
      </pci>
    </pci>
    <pci busid="0000:60:00.0" class="0x060400" vendor="0x1000" device="0xc010" link_speed="2.5 GT/s PCIe" link_width="16">
      <pci busid="0000:62:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="2" sm="90" rank="2" gdr="1"/>
      </pci>
    </pci>
    <pci busid="0000:70:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="" link_width="0">
      <gpu dev="3" sm="90" rank="3" gdr="0"/>
    </pci>
  </cpu>
</system>
"""

TOPO = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\tSYS\t0-15\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\tPXB\t16-31\t1,3-4\t\t10\n"
    "NIC0\tPIX\tSYS\t X \tSYS\t\t\t\n"
    "NIC1\tSYS\tPXB\tSYS\t X \t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  PIX  = Connection traversing at most a single PCIe bridge\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_4\n"
)

NUMACTL = """\
available: 3 nodes (0-1,10)
node 0 cpus: 0 1 2 3
node 0 size: 64306 MB
node 0 free: 59767 MB
node 1 cpus: 4 5 6 7
node 1 size: 64502 MB
node 1 free: 1024 MB
node 10 cpus:
node 10 size: 97280 MB
node 10 free: 97000 MB
node distances:
node   0   1  10
  0:  10  32  80
  1:  32  10  40
 10:  80  40  10
"""

IOMEM = """\
00001000-0009ffff : System RAM
c0000000-febfffff : PCI Bus 0000:00
  d0000000-d00fffff : PCI Bus 0000:02
    d0010000-d001ffff : 0000:02:01.0
      d0010000-d001ffff : e1000
100000000-13fffffff : System RAM
"""

GDSCHECK = """\
 GDS release version: 1.14.0.30
 NVMe P2PDMA        : Unsupported
 NVMe               : Supported
 properties.use_compat_mode : {compat}
 GPU index 0 NVIDIA Example bar:1 bar size (MiB):65536 supports GDS, IOMMU State: Disabled
 IOMMU: disabled
"""

NVBANDWIDTH = """\
{"nvbandwidth": {"GPU Device list": ["0: NVIDIA Example (00000000:43:00): (host)", "1: NVIDIA Example (00000000:44:00): (host)"],
 "testcases": [
  {"name": "device_to_host_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["26.10", "13.05"]]},
  {"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["26.00", "N/A"]]},
  {"name": "host_to_device_memcpy_sm", "status": "Waived"}]}}
"""

BANDWIDTH_TEST = """\
[CUDA Bandwidth Test] - Starting...
 Device 0: NVIDIA Example
 Device to Host Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(GB/s)
   32000000                     26.3

 Device to Device Bandwidth, 1 Device(s)
   Transfer Size (Bytes)        Bandwidth(GB/s)
   32000000                     4366.8
"""

SUPERBENCH = """\
gpu0_to_cpu_by_sm_under_numa0 5.67
gpu0_to_cpu_by_dma_under_numa0 25.85
gpu0_to_cpu_by_dma_under_numa1 26.10
cpu_to_gpu0_by_dma_under_numa0 26.23
"""

GDSIO = """\
$ gdsio -f /mnt/test.bin -x 0 -d 1 -s 50G -I 1 -i 1G
IoType: WRITE XferType: GPUD Threads: 1 DataSetSize: 1/1(KiB) IOSize: 1(KiB) Throughput: 22.5 GiB/sec, Avg_Latency: 1 usecs
$ gdsio -f /mnt/test.bin -x 1 -d 1 -s 50G -I 1 -i 1G
IoType: WRITE XferType: CPUONLY Threads: 1 DataSetSize: 1/1(KiB) IOSize: 1(KiB) Throughput: 24.5 GiB/sec, Avg_Latency: 1 usecs
"""

SRAT = """\
[    0.01] ACPI: SRAT: Node 0 PXM 0 [mem 0x00000000-0x7fffffff]
[    0.01] ACPI: SRAT: Node 0 PXM 0 [mem 0x100000000-0x407fffffff]
[    0.01] ACPI: SRAT: Node 1 PXM 1 [mem 0x4080000000-0x807fffffff]
"""

ALL_TEXTS = (
    LSPCI_VVV, LSPCI_TV, HWLOC, HWLOC_1, NCCL, TOPO, NUMACTL, IOMEM, GDSCHECK.format(compat="false"), NVBANDWIDTH, BANDWIDTH_TEST,
    SUPERBENCH, GDSIO, SRAT,
)  # fmt: skip

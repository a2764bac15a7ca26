"""What goes over a link: TLPs, a DMA engine's stream of them, addresses behind an IOMMU."""

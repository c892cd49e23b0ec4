"""The papers' architectures that timm lacks, one file each, registered with timm when imported."""

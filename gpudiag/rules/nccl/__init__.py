"""Rules about NCCL and the fabric."""

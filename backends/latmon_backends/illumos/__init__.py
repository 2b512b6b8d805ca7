"""Kernel statistics of illumos and Solaris."""

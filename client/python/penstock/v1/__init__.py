"""The messages and services of penstock.v1, generated from the .proto files when the wheel is built."""

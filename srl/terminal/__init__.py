"""What people see: the live view, tables, and the examination of a machine."""

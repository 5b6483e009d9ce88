// A precompiled header needs a translation unit of its own; every other target reuses it.

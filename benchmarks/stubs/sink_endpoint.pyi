from benchmarks.sink_endpoint import *

"""Every contract between the packages of SRL, and nothing else. It needs numpy and msgspec.

Read the modules in this order: `spaces` and `lanes` (environments); `policy`, `trainer` and `algorithm` (learning);
`block` and `streams` (samples and decisions between workers); `parameters` and `transport` (communication); `worker`,
`experiment` and `control` (the graph of workers); `scheduler` and `status` (running and showing it). They use `tree`
(arrays and trees of arrays), `state`, `meter` and `snapshot` of `srl/base`.
"""

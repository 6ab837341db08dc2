"""The scheduler for runs that span several hosts. `host_loss` handles lost hosts, and `takeover` helps a new controller
take over a run. Dead workers are replaced by `srl.controller`, which asks the scheduler to start new ones."""

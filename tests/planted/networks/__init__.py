"""Networks, samples and parts of training that several planted steps share; nothing here is slow on purpose."""

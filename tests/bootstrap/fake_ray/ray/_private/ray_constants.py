"""Part of the stand-in for Ray."""

PROCESS_TYPE_DASHBOARD_AGENT, PROCESS_TYPE_RUNTIME_ENV_AGENT = "dashboard_agent", "runtime_env_agent"

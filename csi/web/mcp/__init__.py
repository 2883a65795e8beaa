"""The MCP server: operations of the admin API as tools for agents, over stdio (`csi mcp`) and at `/mcp`."""
